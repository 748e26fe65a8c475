"""ExtensionServices and the settings of the whole gateway: client certificate, limits, timeouts."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.certificates import authority, server, tls_secret
from tests.support.resources.contour_documents import AUTH, EXTENSION, World, world
from tests.support.resources.graph_views import secure_hosts

from authplane.controlplane.graph.model.upstreams import (
    NO_BREAKERS,
    Breakers,
    ExtensionCluster,
    Plaintext,
    TlsLimits,
    UnverifiedTls,
    VerifiedTls,
)
from authplane.controlplane.status.resource_status import SubCondition
from authplane.core.names import ObjectName
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault

VALIDATION = "  validation: {caSecret: ca, subjectName: auth.example}\n"


def cluster_of(made: World) -> ExtensionCluster | None:
    found = [each for each in made.graph.clusters if isinstance(each, ExtensionCluster)]
    return found[0] if found else None


def settings(envoy: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour}}
spec:
  envoy: {{{envoy}}}
"""


# --- Client certificate

SHOWN = settings("clientCertificate: {namespace: certs, name: envoy}")
CERTIFICATE = tls_secret("envoy", server("envoy.example"), namespace="certs")


@pytest.mark.requirement("ES-18")
def test_the_client_certificate_of_the_gateway_is_shown_without_a_delegation() -> None:
    verified = cluster_of(world(settings=SHOWN, certificate=CERTIFICATE, proxy=""))
    assert verified is not None
    assert verified.tls == VerifiedTls(
        ca=authority().certificate,
        subject_names=("auth.example",),
        server_name="auth.example",
        client_certificate=ObjectName("certs", "envoy"),
    )
    anybody = cluster_of(
        world(settings=SHOWN, certificate=CERTIFICATE, extension=EXTENSION.replace(VALIDATION, ""), proxy="")
    )
    assert anybody is not None
    assert anybody.tls == UnverifiedTls(client_certificate=ObjectName("certs", "envoy"))


@pytest.mark.requirement("ES-18")
@pytest.mark.parametrize(
    ("certificate", "tail"),
    [
        ("", "Secret not found"),
        (CERTIFICATE.replace("tls.key", "other.key"), 'empty "tls.key" key'),
    ],
)
def test_without_its_client_certificate_an_extension_service_has_no_cluster(certificate: str, tail: str) -> None:
    made = world(settings=SHOWN, certificate=certificate, proxy="")
    assert made.problems("ExtensionService") == [
        ("SecretNotValid", f'tls.envoy-client-certificate Secret "certs/envoy" is invalid: {tail}')
    ]
    assert cluster_of(made) is None


def test_plaintext_shows_no_certificate_and_needs_none() -> None:
    made = world(settings=SHOWN, extension=EXTENSION.replace(VALIDATION, "  protocol: h2c\n"), proxy="")
    cluster = cluster_of(made)
    assert cluster is not None
    assert cluster.tls == Plaintext()


# --- What TLS may negotiate


@pytest.mark.requirement("ES-19")
def test_what_tls_to_upstreams_may_negotiate_holds_for_extension_services_too() -> None:
    limits = (
        "cluster: {upstreamTLS: {minimumProtocolVersion: '1.2', maximumProtocolVersion: '1.2', "
        "cipherSuites: [ECDHE-RSA-AES128-GCM-SHA256], ecdhCurves: [P-256]}}"
    )
    wanted = TlsLimits(minimum="1.2", maximum="1.2", ciphers=("ECDHE-RSA-AES128-GCM-SHA256",), curves=("P-256",))
    verified = cluster_of(world(settings=settings(limits)))
    assert verified is not None
    assert isinstance(verified.tls, VerifiedTls)
    assert verified.tls.limits == wanted
    anybody = cluster_of(world(settings=settings(limits), extension=EXTENSION.replace(VALIDATION, "")))
    assert anybody is not None
    assert anybody.tls == UnverifiedTls(limits=wanted)


BAD_LIMITS = {
    "minimumProtocolVersion: '1.3', maximumProtocolVersion: '1.2'": "TLSConfigNotValid",
    "minimumProtocolVersion: '1.1'": "FieldInvalid",
    "cipherSuites: [RC4-SHA]": "FieldInvalid",
    "ecdhCurves: [P-1]": "FieldInvalid",
}


@pytest.mark.requirement("ES-19")
@pytest.mark.parametrize(("limits", "reason"), BAD_LIMITS.items(), ids=BAD_LIMITS.keys())
def test_limits_that_make_no_sense_are_an_error_and_nothing_is_served(limits: str, reason: str) -> None:
    made = world(settings=settings(f"cluster: {{upstreamTLS: {{{limits}}}}}"))
    assert [found for found, _ in made.problems("ContourConfiguration")] == [reason]
    assert secure_hosts(made.graph) == ()


# --- Status

SAID = {
    "caSecret: missing": (
        "TLSUpstreamValidation",
        'TLS upstream validation policy error: invalid CA Secret "default/missing": Secret not found',
    ),
    "protocol: h2c": ("InconsistentProtocol", 'upstream TLS validation not supported for "h2c" protocol'),
    "timeoutPolicy: {idleConnection: x}": (
        "TimeoutPolicyNotValid",
        "spec.timeoutPolicy failed to parse: error parsing idle connection timeout: unable to parse timeout string "
        '"x": time: invalid duration "x"',
    ),
}


@pytest.mark.requirement("ES-12")
@pytest.mark.requirement("ES-16")
@pytest.mark.requirement("ES-29")
@pytest.mark.parametrize(("field", "said"), SAID.items(), ids=SAID.keys())
def test_a_status_says_what_is_wrong_in_contours_words(field: str, said: tuple[str, str]) -> None:
    name = field.partition(":")[0]
    extension = EXTENSION.replace(f"{name}: ca", field) if name in EXTENSION else EXTENSION + f"  {field}\n"
    valid = world(extension=extension).status("ExtensionService", "auth").conditions[0]
    assert valid.errors == (SubCondition(type="SpecError", reason=said[0], message=said[1]),)


@pytest.mark.requirement("ES-25")
@pytest.mark.requirement("ES-27")
def test_a_status_warns_in_contours_words() -> None:
    policies = "  loadBalancerPolicy: {strategy: Cookie}\n  timeoutPolicy: {idle: 5s}\n"
    valid = world(extension=EXTENSION + policies).status("ExtensionService", "auth").conditions[0]
    assert (valid.status, valid.reason) == ("True", "Valid")
    assert valid.warnings == tuple(
        SubCondition(type="SpecError", reason="IgnoredField", message=f"ignoring field {rest} for ExtensionClusters")
        for rest in (
            '".Spec.LoadBalancerPolicy"; Cookie load balancer policy is not supported',
            '".Spec.TimeoutPolicy.Idle"; idle timeouts are not supported',
        )
    )


# --- Limits

DEFAULTS = settings("cluster: {circuitBreakers: {maxConnections: 7, perHostMaxConnections: 3}}")
BREAKERS = {
    "nobody sets any": ("", "", NO_BREAKERS),
    "defaults": (DEFAULTS, "", Breakers(connections=7, connections_per_host=3)),
    "own limits replace the defaults as a whole": (
        DEFAULTS,
        "  circuitBreakerPolicy: {maxPendingRequests: 1, maxRequests: 2, maxRetries: 4}\n",
        Breakers(pending_requests=1, requests=2, retries=4),
    ),
    "own limits that limit nothing": (DEFAULTS, "  circuitBreakerPolicy: {maxRequests: 0}\n", NO_BREAKERS),
}


@pytest.mark.requirement("ES-30")
@pytest.mark.parametrize(("defaults", "policy", "want"), BREAKERS.values(), ids=BREAKERS.keys())
def test_limits_are_the_services_own_or_those_of_the_gateway(defaults: str, policy: str, want: Breakers) -> None:
    cluster = cluster_of(world(settings=defaults, extension=EXTENSION + policy, proxy=""))
    assert cluster is not None
    assert cluster.breakers == want


@pytest.mark.requirement("ES-30")
def test_limits_in_annotations_of_a_target_are_not_read_and_that_is_a_warning() -> None:
    annotations = "{projectcontour.io/max-connections: '5', projectcontour.io/max-retries: '1', other: x}"
    annotated = AUTH.replace("metadata: {name: auth}", f"metadata: {{name: auth, annotations: {annotations}}}", 1)
    made = world(auth=annotated, proxy="")
    assert made.warnings("ExtensionService") == [
        (
            "IgnoredField",
            f'ignoring annotation "projectcontour.io/{limit}" of Service "default/auth"; the field '
            '".Spec.CircuitBreakerPolicy" sets the limits of ExtensionClusters. Set it instead.',
        )
        for limit in ("max-connections", "max-retries")
    ]
    assert cluster_of(made) == cluster_of(world(proxy=""))


# --- Timeouts


def test_the_connect_timeout_is_that_of_the_gateway() -> None:
    default, told = cluster_of(world()), cluster_of(world(settings=settings("timeouts: {connectTimeout: 5s}")))
    assert default is not None
    assert told == replace(default, connect_timeout=After(timedelta(seconds=5)))


TIMEOUTS: dict[str, Timeout] = {
    "0s": UseDefault(),
    "infinity": Disabled(),
    "infinite": Disabled(),
    "1m30s": After(timedelta(seconds=90)),
}


@pytest.mark.requirement("ES-26")
@pytest.mark.requirement("ES-28")
@pytest.mark.requirement("ES-29")
@pytest.mark.parametrize(("text", "want"), TIMEOUTS.items(), ids=TIMEOUTS.keys())
def test_durations_are_read_as_contour_reads_them(text: str, want: Timeout) -> None:
    policy = f"  timeoutPolicy: {{response: {text}, idleConnection: {text}}}\n"
    cluster = cluster_of(world(extension=EXTENSION + policy))
    assert cluster is not None
    assert (cluster.response_timeout, cluster.idle_connection_timeout) == (want, want)
