"""ExtensionServices: every error at once, all or nothing."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.certificates import authority, ca_secret
from tests.support.world import AUTH, EXTENSION, World, world

from authplane.base.names import ObjectName
from authplane.base.timeouts import After, UseDefault
from authplane.graph.upstreams import (
    Balancing,
    Endpoint,
    EndpointGroup,
    ExtensionCluster,
    HttpVersion,
    Plaintext,
    UnverifiedTls,
    VerifiedTls,
)

VALIDATION = "  validation: {caSecret: ca, subjectName: auth.example}\n"
TARGET = "  - {name: auth, port: 9443}\n"


def cluster_of(made: World) -> ExtensionCluster | None:
    found = [each for each in made.graph.clusters if isinstance(each, ExtensionCluster)]
    return found[0] if found else None


@pytest.mark.requirement("ES-4")
@pytest.mark.requirement("ES-6")
@pytest.mark.requirement("ES-35")
def test_a_valid_extension_service_becomes_a_cluster_even_if_nobody_refers_to_it() -> None:
    assert cluster_of(world(proxy="")) == ExtensionCluster(
        name="extension/default/auth",
        object_name=ObjectName("default", "auth"),
        version=HttpVersion.HTTP2,
        tls=VerifiedTls(ca=authority().certificate, subject_names=("auth.example",), server_name="auth.example"),
        authority="auth.example",
        destinations=(
            EndpointGroup(service=ObjectName("default", "auth"), weight=1, endpoints=(Endpoint("10.0.0.2", 9443),)),
        ),
        balancing=Balancing.ROUND_ROBIN,
        response_timeout=UseDefault(),
        idle_connection_timeout=UseDefault(),
    )


class Bad(NamedTuple):
    spec: str
    problems: list[tuple[str, str]]


UPSTREAM = "TLS upstream validation policy error: "
BAD = {
    "missing service": Bad(
        EXTENSION.replace("name: auth, port", "name: missing, port"),
        [
            (
                "ServiceUnresolvedReference",
                'unresolved service "default/missing": service "default/missing" not found',
            )
        ],
    ),
    "unknown port": Bad(
        EXTENSION.replace("9443", "9999"),
        [
            (
                "ServiceUnresolvedReference",
                'unresolved service "default/auth": port "9999" on service "default/auth" not matched',
            )
        ],
    ),
    "missing CA": Bad(
        EXTENSION.replace("caSecret: ca", "caSecret: missing"),
        [("TLSUpstreamValidation", f'{UPSTREAM}invalid CA Secret "default/missing": Secret not found')],
    ),
    "CA of another namespace": Bad(
        EXTENSION.replace("caSecret: ca", "caSecret: other/ca"),
        [
            (
                "CACertificateNotDelegated",
                'service.UpstreamValidation.CACertificate Secret "other/ca" is not configured for certificate '
                "delegation",
            )
        ],
    ),
    "first name differs": Bad(
        EXTENSION.replace("subjectName: auth.example", "subjectName: b, subjectNames: [a, b]"),
        [
            (
                "TLSUpstreamValidation",
                f"{UPSTREAM}first entry of SubjectNames (a) does not match SubjectName (b)",
            )
        ],
    ),
    "validation of plaintext": Bad(
        EXTENSION + "  protocol: h2c\n",
        [("InconsistentProtocol", 'upstream TLS validation not supported for "h2c" protocol')],
    ),
    "bad response timeout": Bad(
        EXTENSION + "  timeoutPolicy: {response: invalid}\n",
        [
            (
                "TimeoutPolicyNotValid",
                "spec.timeoutPolicy failed to parse: error parsing response timeout: unable to parse timeout string "
                '"invalid": time: invalid duration "invalid"',
            )
        ],
    ),
    "protocol in two places": Bad(
        EXTENSION.replace(VALIDATION, "").replace("9443}", "9443, protocol: h2}") + "  protocol: h2c\n",
        [("FieldConflict", "protocol is given more than once, with different values")],
    ),
    "everything at once": Bad(
        EXTENSION.replace("9443", "9999").replace("caSecret: ca", "caSecret: missing"),
        [
            (
                "ServiceUnresolvedReference",
                'unresolved service "default/auth": port "9999" on service "default/auth" not matched',
            ),
            ("TLSUpstreamValidation", f'{UPSTREAM}invalid CA Secret "default/missing": Secret not found'),
        ],
    ),
}


@pytest.mark.requirement("ES-11")
@pytest.mark.requirement("ES-12")
@pytest.mark.requirement("ES-13")
@pytest.mark.requirement("ES-16")
@pytest.mark.requirement("ES-20")
@pytest.mark.requirement("ES-22")
@pytest.mark.requirement("ES-29")
@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_an_invalid_extension_service_has_no_cluster_and_says_why(case: Bad) -> None:
    made = world(extension=case.spec, proxy="")
    assert made.problems("ExtensionService") == case.problems
    assert cluster_of(made) is None


@pytest.mark.requirement("ES-13")
@pytest.mark.parametrize(
    "validation",
    [
        "{caSecret: ca}",
        "{caSecret: ca, subjectName: a, subjectNames: []}",
        "{caSecret: ca, subjectName: a, subjectNames: [a, b, c, d, e, f, g, h, i]}",
    ],
)
def test_an_upstream_has_a_name_and_at_most_eight(validation: str) -> None:
    made = world(extension=EXTENSION.replace("{caSecret: ca, subjectName: auth.example}", validation), proxy="")
    assert len(made.problems("ExtensionService")) == 1
    assert cluster_of(made) is None


def test_a_port_that_is_not_tcp_cannot_be_used() -> None:
    made = world(auth=AUTH.replace("- {name: grpc, port: 9443}", "- {name: grpc, port: 9443, protocol: UDP}", 1))
    assert made.problems("ExtensionService") == [
        ("ServiceUnresolvedReference", 'unresolved service "default/auth": unsupported service protocol "UDP"')
    ]


CA_SECRETS = {
    "empty": ("stringData: {ca.crt: ''}", 'empty "ca.crt" key'),
    "another key": ("stringData: {tls.crt: x}", 'empty "ca.crt" key'),
    "another type": ("type: kubernetes.io/basic-auth", 'secret type is not "kubernetes.io/tls" or "Opaque"'),
}


@pytest.mark.parametrize(("body", "tail"), CA_SECRETS.values(), ids=CA_SECRETS.keys())
def test_a_ca_secret_must_hold_certificates(body: str, tail: str) -> None:
    secret = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: other}}\n{body}\n"
    made = world(extension=EXTENSION.replace("caSecret: ca", "caSecret: other"), other=secret, proxy="")
    assert made.problems("ExtensionService") == [
        ("TLSUpstreamValidation", f'{UPSTREAM}invalid CA Secret "default/other": {tail}')
    ]


def test_a_ca_secret_with_garbage_is_refused_without_repeating_it() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: other}\nstringData: {ca.crt: very-private-text}\n"
    made = world(extension=EXTENSION.replace("caSecret: ca", "caSecret: other"), other=secret, proxy="")
    [(reason, message)] = made.problems("ExtensionService")
    assert reason == "TLSUpstreamValidation"
    assert "invalid CA certificate bundle" in message
    assert "very-private-text" not in message


@pytest.mark.requirement("ES-5")
def test_validation_may_stand_in_the_service_as_well() -> None:
    inner = EXTENSION.replace(VALIDATION, "").replace(
        TARGET, "  - name: auth\n    port: 9443\n    validation: {caSecret: ca, subjectName: auth.example}\n"
    )
    assert cluster_of(world(extension=inner)) == cluster_of(world())


def test_without_validation_the_upstream_is_anybody_and_that_is_a_warning() -> None:
    made = world(extension=EXTENSION.replace(VALIDATION, ""))
    cluster = cluster_of(made)
    assert cluster is not None
    assert cluster.tls == UnverifiedTls()
    assert cluster.authority == "extension.default.auth"
    assert [reason for reason, _ in made.warnings("ExtensionService")] == ["UpstreamNotVerified"]


def test_h2c_is_plaintext() -> None:
    cluster = cluster_of(world(extension=EXTENSION.replace(VALIDATION, "  protocol: h2c\n")))
    assert cluster is not None
    assert cluster.tls == Plaintext()


@pytest.mark.requirement("ES-9")
def test_version_2_of_the_protocol_is_accepted_with_a_warning() -> None:
    made = world(extension=EXTENSION + "  protocolVersion: v2\n")
    assert [reason for reason, _ in made.warnings("ExtensionService")] == ["IgnoredField"]
    assert cluster_of(made) is not None


WEIGHTS = {"none": (0, 0, (1, 1)), "some": (3, 1, (3, 1)), "one of them zero": (2, 0, (2, 0))}


@pytest.mark.parametrize(("first", "second", "want"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_weights_are_equal_when_nobody_sets_one(first: int, second: int, want: tuple[int, int]) -> None:
    other = AUTH.replace("auth", "other")
    targets = f"  - {{name: auth, port: 9443, weight: {first}}}\n  - {{name: other, port: 9443, weight: {second}}}\n"
    cluster = cluster_of(world(extension=EXTENSION.replace(TARGET, targets), other=other))
    assert cluster is not None
    assert tuple(group.weight for group in cluster.destinations) == want


@pytest.mark.requirement("ES-25")
@pytest.mark.parametrize("strategy", ["RoundRobin", "Random", "WeightedLeastRequest"])
def test_three_ways_to_balance(strategy: str) -> None:
    cluster = cluster_of(world(extension=EXTENSION + f"  loadBalancerPolicy: {{strategy: {strategy}}}\n"))
    assert cluster is not None
    assert cluster.balancing == Balancing(strategy)


@pytest.mark.requirement("ES-25")
@pytest.mark.parametrize("strategy", ["Cookie", "RequestHash", "Nonsense"])
def test_other_ways_to_balance_are_a_warning(strategy: str) -> None:
    made = world(extension=EXTENSION + f"  loadBalancerPolicy: {{strategy: {strategy}}}\n")
    assert made.warnings("ExtensionService") == [
        (
            "IgnoredField",
            f'ignoring field ".Spec.LoadBalancerPolicy"; {strategy} load balancer policy is not supported for '
            "ExtensionClusters",
        )
    ]
    cluster = cluster_of(made)
    assert cluster is not None
    assert cluster.balancing == Balancing.ROUND_ROBIN


@pytest.mark.requirement("ES-27")
@pytest.mark.requirement("ES-28")
def test_idle_streams_have_no_timeout_and_idle_connections_do() -> None:
    made = world(extension=EXTENSION + "  timeoutPolicy: {idle: 5s, idleConnection: 90s}\n")
    assert made.warnings("ExtensionService") == [
        (
            "IgnoredField",
            'ignoring field ".Spec.TimeoutPolicy.Idle"; idle timeouts are not supported for ExtensionClusters',
        )
    ]
    cluster = cluster_of(made)
    assert cluster is not None
    assert cluster.idle_connection_timeout == After(timedelta(seconds=90))


@pytest.mark.requirement("ES-24")
def test_a_service_that_appears_later_makes_it_valid() -> None:
    assert cluster_of(world(auth="")) is None
    assert cluster_of(world()) is not None


def test_a_ca_secret_of_type_tls_is_accepted() -> None:
    secret = ca_secret("ca").replace("stringData", "type: kubernetes.io/tls\nstringData")
    made = world(secrets=secret, proxy="")
    assert cluster_of(made) is not None
