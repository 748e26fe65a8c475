"""Envoy recognises workloads by their certificates, and nobody whom the policy engine does not."""

import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.support.envoy.answered_conditions import Asked, Sent, bootstrap
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import START_LIMIT
from tests.support.issuers.svids import AGENT, key, named, purposes, shown, uri, usage

from authplane.cel.envoy.translate import Condition
from authplane.controlplane.render.native.rbac_policies import workload
from authplane.policy.identity.workload_identity.certificate_identity import PeerCertificates
from authplane.policy.identity.workload_identity.spiffe import SpiffeId
from authplane.policy.placement.placement_model import Sender
from authplane.policy.placement.source_placement import place_source
from authplane.policy.rules.access_settings import Settings
from authplane.policy.rules.rule_model import Spiffe
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy

OTHER: Final = "spiffe://cluster.local/ns/default/sa/other"
NAMES: Final[dict[str, tuple[x509.GeneralName, ...]]] = {
    "the workload": (uri(),),
    "another workload": (uri(OTHER),),
    "the workload and another": (uri(), uri(OTHER)),
    "another and the workload": (uri(OTHER), uri()),
    "the workload twice": (uri(), uri()),
    "the workload and a host": (x509.DNSName("shop.test"), uri()),
    "a host that is spelled like it": (x509.DNSName(AGENT),),
    "a longer id": (uri(f"{AGENT}2"),),
    "no name": (),
}


def certificate(*names: x509.GeneralName, ca: bool = False) -> x509.Certificate:
    """Make a certificate that holds now."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named("authority" if ca else "workload"))
        .issuer_name(named("authority"))
        .public_key(key(1 if ca else 0).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(usage("key_cert_sign") if ca else usage("digital_signature"), critical=True)
    )
    if not ca:
        both = purposes(ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = builder.add_extension(both, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key(1), hashes.SHA256())


def pem(made: x509.Certificate) -> str:
    return made.public_bytes(Encoding.PEM).decode()


def private() -> str:
    return key(0).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def with_tls(config: str) -> str:
    """Let the listener ask for certificates, and tell filters which URIs they have."""
    whole: dict[str, Any] = json.loads(config)
    [chain] = whole["static_resources"]["listeners"][0]["filter_chains"]
    manager = chain["filters"][0]["typed_config"]
    manager["forward_client_cert_details"] = "SANITIZE_SET"
    manager["set_current_client_cert_details"] = {"uri": True}
    server = certificate(x509.DNSName("shop.test"), uri("spiffe://cluster.local/envoy"))
    chain["transport_socket"] = {
        "name": "tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "require_client_certificate": True,
            "common_tls_context": {
                "tls_certificates": [
                    {"certificate_chain": {"inline_string": pem(server)}, "private_key": {"inline_string": private()}}
                ],
                "validation_context": {"trusted_ca": {"inline_string": pem(certificate(ca=True))}},
            },
        },
    }
    return json.dumps(whole)


def context(shown_one: x509.Certificate, folder: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=pem(certificate(ca=True)))
    made.check_hostname = False
    (folder / "client.pem").write_text(pem(shown_one) + private(), encoding="utf-8")
    made.load_cert_chain(folder / "client.pem")
    return made


async def _ignore(_line: Line) -> None:
    pass


def engine(made: x509.Certificate, first: str) -> bool:
    """Tell whether the policy engine takes a certificate for the workload's; Envoy says which name is the first."""
    now = datetime.now(UTC).timestamp()
    found = PeerCertificates().identify(first, shown(made), frozenset({"cluster.local"}), now)
    return isinstance(found, SpiffeId) and str(found) == AGENT


@pytest.mark.real
@pytest.mark.requirement("R15")
@pytest.mark.parametrize("version", VERSIONS, ids=str)
async def test_envoy_and_the_engine_recognise_the_same_workloads(tmp_path: Path, version: Version) -> None:
    sender = place_source(Spiffe(frozenset({AGENT})), Settings())
    assert isinstance(sender, Sender)
    conditions: list[Condition] = [sender.condition]
    found = {}
    config = with_tls(bootstrap(conditions, tmp_path / "s", [workload(each) for each in sender.ids]))
    async with run_envoy(config, sink=_ignore, settings=version.settings()) as envoy:
        await envoy.ready(limit=START_LIMIT)
        for name, names in NAMES.items():
            made = certificate(*names)
            transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "s"), verify=context(made, tmp_path))
            async with httpx2.AsyncClient(transport=transport, timeout=20) as client:
                asked = Asked(client, scheme="https")
                # A header of the client's own must not help.
                claimed = (("x-forwarded-client-cert", f"URI={AGENT}"),)
                holds = await asked.holds(0, Sent(method="GET", headers=claimed))
            uris = [each.value for each in names if isinstance(each, x509.UniformResourceIdentifier)]
            found[name] = (holds, engine(made, uris[0] if uris else ""))
    assert [name for name, (envoys, ours) in found.items() if envoys != ours] == []
    assert {name for name, (envoys, _) in found.items() if envoys} == {"the workload", "the workload and a host"}
