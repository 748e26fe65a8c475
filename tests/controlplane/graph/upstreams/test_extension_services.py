"""ExtensionServices: every error at once, all or nothing."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.certificates import authority, ca_secret
from tests.support.resources.contour_documents import EXTENSION, World, world

from authplane.controlplane.graph.model.upstreams import (
    Balancing,
    EndpointGroup,
    ExtensionCluster,
    HttpVersion,
    Plaintext,
    UnverifiedTls,
    UpstreamTls,
    VerifiedTls,
)
from authplane.core.names import ObjectName
from authplane.core.timeouts import After, UseDefault
from authplane.resources.service_endpoints import Endpoint

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
    "validation of plaintext HTTP/1.1, with a CA that is missing": Bad(
        EXTENSION.replace("caSecret: ca", "caSecret: missing") + "  protocol: http/1.1\n",
        [
            ("InconsistentProtocol", 'upstream TLS validation not supported for "http/1.1" protocol'),
            ("TLSUpstreamValidation", f'{UPSTREAM}invalid CA Secret "default/missing": Secret not found'),
        ],
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
    "every timeout is bad": Bad(
        EXTENSION + "  timeoutPolicy: {response: '10', idle: x, idleConnection: -1s}\n",
        [
            (
                "TimeoutPolicyNotValid",
                f"spec.timeoutPolicy failed to parse: error parsing {which} timeout: unable to parse timeout string "
                f'"{text}": time: invalid duration "{text}"',
            )
            for which, text in (("response", "10"), ("idle", "x"), ("idle connection", "-1s"))
        ],
    ),
    "protocol in two places": Bad(
        EXTENSION.replace(VALIDATION, "").replace("9443}", "9443, protocol: h2}") + "  protocol: h2c\n",
        [("FieldConflict", "protocol is set more than once, with different values. Set it once.")],
    ),
    "validation in two places": Bad(
        EXTENSION.replace("9443}", "9443, validation: {caSecret: ca, subjectName: other.example}}"),
        [("FieldConflict", "validation is set more than once, with different values. Set it once.")],
    ),
    "two services, two protocols": Bad(
        EXTENSION.replace(VALIDATION, "").replace(
            TARGET, "  - {name: auth, port: 9443, protocol: h2c}\n  - {name: auth, port: 9443, protocol: h2}\n"
        ),
        [("FieldConflict", "protocol is set more than once, with different values. Set it once.")],
    ),
    "a protocol that only one of two services names": Bad(
        EXTENSION.replace(VALIDATION, "").replace(
            TARGET, "  - {name: auth, port: 9443}\n  - {name: auth, port: 9443, protocol: h2c}\n"
        ),
        [("FieldConflict", "protocol is set for some services only, but it applies to all of them. Set it in spec.")],
    ),
    "validation of one of two services": Bad(
        EXTENSION.replace(VALIDATION, "").replace(
            TARGET,
            "  - {name: auth, port: 9443}\n"
            "  - {name: auth, port: 9443, validation: {caSecret: ca, subjectName: auth.example}}\n",
        ),
        [("FieldConflict", "validation is set for some services only, but it applies to all of them. Set it in spec.")],
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


@pytest.mark.requirement("ES-5")
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


PROTOCOLS = {
    "": (HttpVersion.HTTP2, UnverifiedTls()),
    "protocol: ''": (HttpVersion.HTTP2, UnverifiedTls()),
    "protocol: h2": (HttpVersion.HTTP2, UnverifiedTls()),
    "protocol: h2c": (HttpVersion.HTTP2, Plaintext()),
    "protocol: http/1.1": (HttpVersion.HTTP1, Plaintext()),
}


@pytest.mark.requirement("ES-5")
@pytest.mark.requirement("ES-6")
@pytest.mark.requirement("ES-7")
@pytest.mark.requirement("ES-8")
@pytest.mark.parametrize(("field", "want"), PROTOCOLS.items(), ids=PROTOCOLS.keys())
def test_a_protocol_is_a_version_and_tls_or_not_wherever_it_stands(
    field: str, want: tuple[HttpVersion, UpstreamTls]
) -> None:
    above = EXTENSION.replace(VALIDATION, f"  {field}\n" if field else "")
    inside = EXTENSION.replace(VALIDATION, "").replace("9443}", f"9443, {field}}}" if field else "9443}")
    both = inside + (f"  {field}\n" if field else "")
    for extension in (above, inside, both):
        cluster = cluster_of(world(extension=extension, proxy=""))
        assert cluster is not None
        assert (cluster.version, cluster.tls) == want


@pytest.mark.requirement("ES-7")
@pytest.mark.parametrize("protocol", ["h3", "tls", "http"])
def test_another_protocol_is_an_error(protocol: str) -> None:
    made = world(extension=EXTENSION + f"  protocol: {protocol}\n", proxy="")
    assert len(made.problems("ExtensionService")) == 1
    assert cluster_of(made) is None


NAMES = {
    "the first subject name": ("", "auth.example", "auth.example"),
    "another server name": ("serverName: tls.example", "tls.example", "tls.example"),
    "another authority": ("authority: 'grpc.example:9443'", "auth.example", "grpc.example:9443"),
    "both": ("serverName: tls.example\n  authority: grpc.example", "tls.example", "grpc.example"),
}


@pytest.mark.requirement("ES-15")
@pytest.mark.requirement("EN-4")
@pytest.mark.parametrize(("field", "server_name", "authority_"), NAMES.values(), ids=NAMES.keys())
def test_tls_asks_for_one_name_and_checks_name_it_too_unless_they_are_told_otherwise(
    field: str, server_name: str, authority_: str
) -> None:
    cluster = cluster_of(world(extension=EXTENSION + (f"  {field}\n" if field else "")))
    assert cluster is not None
    assert cluster.authority == authority_
    assert cluster.tls == VerifiedTls(
        ca=authority().certificate, subject_names=("auth.example",), server_name=server_name
    )


@pytest.mark.requirement("EN-4")
def test_a_plaintext_check_names_the_cluster_or_the_given_authority() -> None:
    plain = EXTENSION.replace(VALIDATION, "  protocol: h2c\n")
    first, second = cluster_of(world(extension=plain)), cluster_of(world(extension=plain + "  authority: a.example\n"))
    assert first is not None
    assert second is not None
    assert (first.authority, second.authority) == ("extension.default.auth", "a.example")


def test_a_server_name_without_tls_is_a_warning() -> None:
    made = world(extension=EXTENSION.replace(VALIDATION, "  protocol: h2c\n  serverName: a.example\n"))
    assert made.warnings("ExtensionService") == [
        ("IgnoredField", 'ignoring field ".Spec.ServerName"; protocol "h2c" does not use TLS. Remove it.')
    ]


@pytest.mark.parametrize(
    "field", ["serverName: 'a b'", "serverName: 'a:1'", 'authority: "a\\r\\nx: y"', "authority: a/b"]
)
def test_names_that_no_header_or_handshake_may_hold_are_errors(field: str) -> None:
    made = world(extension=EXTENSION + f"  {field}\n", proxy="")
    assert len(made.problems("ExtensionService")) == 1
    assert cluster_of(made) is None


@pytest.mark.requirement("ES-13")
def test_any_of_several_subject_names_may_match() -> None:
    names = "subjectName: a.example, subjectNames: [a.example, b.example]"
    cluster = cluster_of(world(extension=EXTENSION.replace("subjectName: auth.example", names)))
    assert cluster is not None
    assert cluster.tls == VerifiedTls(
        ca=authority().certificate, subject_names=("a.example", "b.example"), server_name="a.example"
    )


@pytest.mark.requirement("ES-9")
def test_version_2_of_the_protocol_is_accepted_with_a_warning() -> None:
    made = world(extension=EXTENSION + "  protocolVersion: v2\n")
    assert [reason for reason, _ in made.warnings("ExtensionService")] == ["IgnoredField"]
    assert cluster_of(made) is not None


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


def test_a_ca_secret_of_type_tls_is_accepted() -> None:
    secret = ca_secret("ca").replace("stringData", "type: kubernetes.io/tls\nstringData")
    made = world(secrets=secret, proxy="")
    assert cluster_of(made) is not None


@pytest.mark.requirement("ES-17")
def test_an_error_in_the_validation_secret_does_not_hide_those_of_the_services() -> None:
    text = EXTENSION.replace("caSecret: ca", "caSecret: nothing").replace(
        "{name: auth, port: 9443}", "{name: no, port: 1}"
    )
    assert [reason for reason, _ in world(extension=text).problems("ExtensionService")] == [
        "ServiceUnresolvedReference",
        "TLSUpstreamValidation",
    ]
