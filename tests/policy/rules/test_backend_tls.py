"""Services that are reached over TLS, or not at all."""

from typing import NamedTuple

import pytest
from tests.support.certificates import authority, ca_secret, indented, server
from tests.support.policies.callers import Proof
from tests.support.policies.compiled import compiled, load
from tests.support.policies.documents import BACKEND, anybody, policy
from tests.support.policies.external_services import asks
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL

from authplane.core.names import ObjectName
from authplane.policy.rules.backend_tls import BackendTls, SystemTrust, Tls, TlsRefused, read_backend_tls
from authplane.policy.rules.external_service import ExternalService, OverGrpc
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import Asked
from authplane.policy.verdicts.effects import Granted

SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: authz}
spec: {ports: [{name: grpc, port: 9000}, {name: http, port: 9001}]}
"""
CA = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: ca}}
data:
  ca.crt: |
{indented(authority().certificate)}
"""
HOST = "hostname: authz.example"
REFS = "caCertificateRefs: [{kind: ConfigMap, name: ca}]"
WHOLE = "[{group: '', kind: Service, name: authz}]"
GRPC = "[{group: '', kind: Service, name: authz, sectionName: grpc}]"
VERIFIED = BackendTls(hostname="authz.example", ca=authority().certificate)
SYSTEM = BackendTls(hostname="other.example", ca=SystemTrust())
SYSTEM_POLICY = "hostname: other.example, wellKnownCACertificates: System"


def tls_policy(
    targets: str = WHOLE, validation: str = f"{HOST}, {REFS}", *, name: str = "tls", created: str = "", more: str = ""
) -> str:
    version = "gateway.networking.k8s.io/v1"
    meta = f"name: {name}" + (f", creationTimestamp: '{created}'" if created else "")
    spec = f"{{targetRefs: {targets}, validation: {{{validation}}}{more}}}"
    return f"apiVersion: {version}\nkind: BackendTLSPolicy\nmetadata: {{{meta}}}\nspec: {spec}\n"


class Case(NamedTuple):
    documents: tuple[str, ...]
    grpc: Tls | None
    http: Tls | None
    reasons: tuple[str, ...] = ()


NO_CA = TlsRefused("NoValidCACertificate", "No CA certificate is usable. Correct caCertificateRefs.")
UNREADABLE = TlsRefused("Invalid", 'BackendTLSPolicy "default/tls" cannot be read. Correct the document.')
NO_YAML = TlsRefused("Invalid", "a.yaml may contain a BackendTLSPolicy and cannot be read. Correct the file.")
NOT_THERE = TlsRefused("TargetNotFound", "Service \"default/authz\" has no port 'gprc'. Correct sectionName.")
BAD_NAME = TlsRefused("Invalid", "'*.example' is not a host name. Use a name such as 'authz.example.com'.")
ONE_OF = TlsRefused(
    "Invalid", "'caCertificateRefs' and 'wellKnownCACertificates' are both missing. Set exactly one of them."
)
BOTH = TlsRefused("Invalid", ONE_OF.message.replace("both missing", "both set"))
CASES = {
    "without a policy there is no TLS": Case((), None, None),
    "a whole Service": Case((CA, tls_policy()), VERIFIED, VERIFIED),
    "one port": Case((CA, tls_policy(GRPC)), VERIFIED, None),
    "a port goes before the whole": Case(
        (CA, tls_policy(GRPC, name="z"), tls_policy(validation=SYSTEM_POLICY, name="a")), VERIFIED, SYSTEM
    ),
    "the certificates of a Secret": Case(
        (ca_secret("ca"), tls_policy(validation=f"{HOST}, {REFS.replace('ConfigMap', 'Secret')}")), VERIFIED, VERIFIED
    ),
    "one CA of two can be read": Case(
        (CA, tls_policy(validation=f"{HOST}, caCertificateRefs: [{{kind: Secret, name: x}}, {REFS[20:]}")),
        VERIFIED, VERIFIED, ("InvalidCACertificateRef",),
    ),
    "the first by name of two": Case(
        (CA, tls_policy(name="b", validation=SYSTEM_POLICY), tls_policy(name="a")), VERIFIED, VERIFIED, ("Conflicted",)
    ),
    "the older of two": Case(
        (CA, tls_policy(name="b", created="2026-01-01T00:00:00Z"), tls_policy(name="a", validation=SYSTEM_POLICY)),
        VERIFIED, VERIFIED, ("Conflicted",),
    ),
    "a port that is not there": Case(
        (CA, tls_policy(GRPC.replace("grpc", "gprc"))), NOT_THERE, NOT_THERE, ("TargetNotFound",)
    ),
    "a Service that is not there": Case(
        (CA, tls_policy(WHOLE.replace("authz", "other"))), None, None, ("TargetNotFound",)
    ),
    "something else": Case((CA, tls_policy(WHOLE.replace("Service", "Backend"))), None, None, ("UnsupportedTarget",)),
    "no CA": Case((tls_policy(),), NO_CA, NO_CA, ("InvalidCACertificateRef",)),
    "a CA that is none": Case(
        (CA.replace("BEGIN", "BEGUN"), tls_policy()), NO_CA, NO_CA, ("InvalidCACertificateRef",)
    ),
    "a CA of an unknown kind": Case(
        (CA, tls_policy(validation=f"{HOST}, {REFS.replace('ConfigMap', 'Bundle')}")), NO_CA, NO_CA, ("InvalidKind",)
    ),
    "no name of one host": Case(
        (CA, tls_policy(validation=f"hostname: '*.example', {REFS}")), BAD_NAME, BAD_NAME, ("FieldInvalid",)
    ),
    "nobody is trusted": Case((tls_policy(validation=HOST),), ONE_OF, ONE_OF, ("FieldInvalid",)),
    "two kinds of trust": Case(
        (CA, tls_policy(validation=f"{SYSTEM_POLICY}, {REFS}")), BOTH, BOTH, ("FieldInvalid",)
    ),
    "options": Case((CA, tls_policy(more=", options: {a: b}")), VERIFIED, VERIFIED, ("IgnoredField",)),
    "what cannot be enforced": Case(
        (CA, tls_policy(validation=f"{HOST}, {REFS}, subjectAltNames: [{{type: URI, uri: 'spiffe://a/b'}}]")),
        UNREADABLE, UNREADABLE,
    ),
    "a version that nobody knows": Case((CA, tls_policy().replace("io/v1", "io/v9")), UNREADABLE, UNREADABLE),
    "targets that cannot be read": Case((CA, tls_policy("7")), UNREADABLE, UNREADABLE),
    "what is no YAML": Case((CA, tls_policy() + "  - {\n"), NO_YAML, NO_YAML),
    "what is no YAML, and no such policy": Case(("apiVersion: v1\nkind: Secret\n  - {\n",), None, None),
    "targets of others that cannot be read": Case((CA, tls_policy("[{kind: Service, name: x, b: 1}]")), None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_service_that_a_policy_names_is_reached_over_tls_or_not_at_all(case: Case) -> None:
    resources = load(SERVICE, *case.documents).resources
    found = read_backend_tls(resources)
    service = resources.services[ObjectName("default", "authz")]
    assert (found.find(service, 9000), found.find(service, 9001)) == (case.grpc, case.http)
    assert tuple(each.reason for problems in found.problems.values() for each in problems) == case.reasons


alone_or_beside = pytest.mark.parametrize(
    "asked",
    [policy(anybody(f"[{asks()}]")), policy(anybody(f"[{{type: InlineTools, tools: [sub]}}, {asks()}]"))],
    ids=["alone", "beside another entry"],
)


@alone_or_beside
def test_an_external_service_is_called_over_the_tls_of_its_policy(asked: str) -> None:
    made = compiled(BACKEND, SERVICE, CA, tls_policy(), asked)
    attachment = made.policies.attachments[PolicyTarget(next(iter(made.policies.attachments)).ref)]
    want = ExternalService(service=ObjectName("default", "authz"), port=9000, protocol=OverGrpc(), tls=VERIFIED)
    entries = attachment.policies[0].rules[0].entries  # type: ignore[union-attr]
    assert [each for each in entries if isinstance(each, Asked)] == [Asked(want)]


@alone_or_beside
def test_an_external_service_whose_policy_cannot_be_followed_is_not_asked(asked: str) -> None:
    services = Services(authz=Granted())
    made = compiled(BACKEND, SERVICE, tls_policy(), asked)
    assert word(judge(made.policies, ADD_CALL, Proof(), services)) == "unavailable"
    assert services.names == []
    [problem] = [each for found in made.problems.values() for each in found if each.reason == "BackendNotFound"]
    assert problem.message == (
        'authplane cannot call Service "default/authz" over TLS: No CA certificate is usable. Correct '
        "caCertificateRefs."
    )


def test_a_private_key_beside_the_certificates_goes_no_further() -> None:
    both = CA + indented(server("x").key.reveal()) + "\n"
    found = read_backend_tls(load(SERVICE, both, tls_policy()).resources)
    assert found.services[ObjectName("default", "authz")] == {"": VERIFIED}
