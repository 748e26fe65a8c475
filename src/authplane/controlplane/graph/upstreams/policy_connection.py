"""The policy server, as Envoy reaches it."""

import re
from datetime import timedelta
from typing import Final, TypeAlias

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    FailClosed,
    OverGrpc,
)
from authplane.controlplane.graph.model.upstreams import (
    Breakers,
    CaFile,
    CertificateFiles,
    Destinations,
    ExtensionCluster,
    ExternalName,
    HttpVersion,
    Plaintext,
    SocketFile,
    VerifiedTls,
)
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.settings_places import configuration_ref
from authplane.controlplane.graph.tls.tls_secrets import Unusable, ca_bundle, remedy, server_certificate
from authplane.core.addresses import is_loopback
from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.core.timeouts import After, Timeout, UseDefault, parse_timeout
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.configuration import PolicyServer as Written

POLICY_CLUSTER: Final = "authplane/policy"
_AUTHORITY: Final = "authplane.policy"
_OURS: Final = ObjectName("", "policy")
_CLIENT: Final = ObjectName("", "policy-client")
"""No object has these names."""
_UNAVAILABLE: Final = 503
_LONGEST_DECISION: Final = After(timedelta(seconds=5))
_RETRIES: Final = 1024
"""Maximum number of concurrent retries of checks: as many as checks. Envoy's default is 3, and others fail."""
_NO_TLS: Final = Plaintext()
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])")


@dataclass(frozen=True, slots=True)
class OverTcp:
    """Reached over the network, or over the loopback interface."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class OverSocket:
    """Reached over a socket in the file system."""

    path: str


Where: TypeAlias = OverTcp | OverSocket


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyServer:
    """Where decisions are made and how long one may take."""

    addresses: tuple[Where, ...] = (OverTcp("127.0.0.1", 9443),)
    """At least one; all of them decide alike."""
    tls: Plaintext | VerifiedTls = _NO_TLS
    client: Certificate | CertificateFiles | None = None
    """The certificate that Envoy presents to it; its name is that in ``tls``."""
    timeout: Timeout = _LONGEST_DECISION


LOCAL_POLICY_SERVER: Final = PolicyServer()


def read_policy_server(resources: Resources, reports: Reports) -> PolicyServer:
    """Read ``policyServer`` of the configuration; what is wrong there makes the configuration unusable."""
    configuration = resources.configuration
    written = configuration.spec.policy_server if configuration is not None else None
    if configuration is None or written is None:
        return LOCAL_POLICY_SERVER
    problems = reports.of(configuration_ref(configuration))
    with problems.at("spec", "policyServer"):
        addresses = _addresses(written, problems)
        client = _client(written, resources, problems)
        tls = _tls(written, addresses, client, resources, problems)
        timeout = _timeout(written.timeout, problems)
    return PolicyServer(addresses=addresses, tls=tls, client=client, timeout=timeout)


def policy_service(server: PolicyServer, most_bytes: int) -> AuthorizationService:
    """Return how checks are made: with the whole body, or not at all, and without an answer nothing goes through."""
    return AuthorizationService(
        cluster=POLICY_CLUSTER,
        protocol=OverGrpc(authority=_AUTHORITY, retried=True),
        timeout=server.timeout,
        on_failure=FailClosed(status=_UNAVAILABLE),
        body=CheckedBody(most_bytes=most_bytes, as_bytes=True),
        by_policies=True,
    )


def policy_cluster(server: PolicyServer) -> ExtensionCluster:
    """Return the cluster of the policy server."""
    return ExtensionCluster(
        name=POLICY_CLUSTER,
        object_name=_OURS,
        version=HttpVersion.HTTP2,
        tls=server.tls,
        destinations=_destinations(server.addresses),
        authority=_AUTHORITY,
        response_timeout=server.timeout,
        breakers=Breakers(retries=_RETRIES),
        keepalive=True,
        health_checks=len(server.addresses) > 1,
    )


def _destinations(addresses: tuple[Where, ...]) -> Destinations:
    sockets = tuple(
        SocketFile(service=_OURS, weight=1, path=each.path) for each in addresses if isinstance(each, OverSocket)
    )
    return sockets or tuple(
        ExternalName(service=_OURS, weight=1, host=each.host, port=each.port, ipv4_first=True, searched=True)
        for each in addresses
        if isinstance(each, OverTcp)
    )


def _addresses(written: Written, problems: Problems) -> tuple[Where, ...]:
    if not written.addresses:
        with problems.at("address"):
            return LOCAL_POLICY_SERVER.addresses if written.address is None else (_where(written.address, problems),)
    with problems.at("addresses"):
        if written.address is not None:
            problems.add("PolicyServerNotValid", "address and addresses are both set. Remove one of them.")
        if len(set(written.addresses)) != len(written.addresses):
            problems.add("PolicyServerNotValid", "An address is listed twice. List each server once.")
        found = []
        for number, address in enumerate(written.addresses):
            with problems.at(number):
                found.append(_where(address, problems))
        if len({type(each) for each in found}) > 1:
            problems.add(
                "PolicyServerNotValid", "The list contains both Unix sockets and host:port. Use one of the two forms."
            )
    return tuple(found)


def _where(address: str, problems: Problems) -> Where:
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/") or len(path) > 107:  # what a socket's address has room for
            problems.add(
                "PolicyServerNotValid",
                f"{address!r} is not 'unix:' followed by an absolute path of at most 107 characters. Use one such as "
                "'unix:/run/policy.sock'.",
            )
        return OverSocket(path)
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 1 <= int(port) <= 65535:
        problems.add(
            "PolicyServerNotValid", f"{address!r} is not host:port. Use an address such as 'policy.example:9443'."
        )
        return OverTcp("127.0.0.1", 1)
    return OverTcp(host.strip("[]"), int(port))


def _tls(
    written: Written,
    addresses: tuple[Where, ...],
    client: Certificate | CertificateFiles | None,
    resources: Resources,
    problems: Problems,
) -> Plaintext | VerifiedTls:
    ca = _ca(written, resources, problems)
    if ca is None:
        if not all(isinstance(each, OverSocket) or is_loopback(each.host) for each in addresses):
            problems.add(
                "PolicyServerNotValid",
                "Envoy cannot verify the policy server without a CA. Set caFile or caSecret, or use a loopback "
                "address or a Unix socket.",
            )
        for field, given in (("serverName", written.server_name), (_field_of_client(written), client)):
            if given:
                with problems.at(field):
                    problems.add(
                        "PolicyServerNotValid",
                        "This field has no effect without TLS. Set caFile or caSecret, or remove this field.",
                    )
        return _NO_TLS
    hosts = {each.host if isinstance(each, OverTcp) else "" for each in addresses}
    name = written.server_name or (hosts.pop() if len(hosts) == 1 else "")
    if not name:
        with problems.at("serverName"):
            problems.add(
                "PolicyServerNotValid",
                "This field is required, because the addresses do not share one host name. Set a name that the"
                " certificate of the policy server contains.",
            )
    return VerifiedTls(
        ca=ca, subject_names=(name,), server_name=name, client_certificate=client.name if client is not None else None
    )


def _field_of_client(written: Written) -> str:
    return "clientSecret" if written.client_secret is not None else "clientCertFile"


def _client(written: Written, resources: Resources, problems: Problems) -> Certificate | CertificateFiles | None:
    """Read what Envoy shows to the policy server."""
    files = (written.client_cert_file, written.client_key_file)
    if written.client_secret is None:
        if any(files) and not all(files):
            with problems.at("clientKeyFile" if files[0] else "clientCertFile"):
                problems.add("PolicyServerNotValid", "Only one of clientCertFile and clientKeyFile is set. Set both.")
        return CertificateFiles(name=_CLIENT, chain=files[0], key=files[1]) if any(files) else None
    with problems.at("clientSecret"):
        if any(files):
            problems.add(
                "PolicyServerNotValid",
                "clientSecret and certificate files are both set. Set clientSecret or the two files, not both.",
            )
        name = ObjectName(written.client_secret.namespace, written.client_secret.name)
        found = server_certificate(resources, name)
        if isinstance(found, Unusable):
            problems.add("PolicyServerNotValid", f'Secret "{name}" cannot be used: {found}. {remedy(found)}')
            return None
        return found


def _ca(written: Written, resources: Resources, problems: Problems) -> bytes | CaFile | None:
    if written.ca_secret is None:
        return CaFile(written.ca_file) if written.ca_file else None
    with problems.at("caSecret"):
        if written.ca_file:
            problems.add("PolicyServerNotValid", "caFile and caSecret are both set. Remove one of them.")
        name = ObjectName(written.ca_secret.namespace, written.ca_secret.name)
        bundle = ca_bundle(resources, name)
        if isinstance(bundle, Unusable):
            problems.add("PolicyServerNotValid", f'Secret "{name}" cannot be used: {bundle}. {remedy(bundle)}')
            return b""
        return bundle


def _timeout(text: str, problems: Problems) -> Timeout:
    parsed = parse_timeout(text)
    if isinstance(parsed, After):
        return parsed
    if not isinstance(parsed, UseDefault):
        with problems.at("timeout"):
            problems.add("PolicyServerNotValid", f"{text!r} is not a duration. Use one such as '2s'.")
    return _LONGEST_DECISION
