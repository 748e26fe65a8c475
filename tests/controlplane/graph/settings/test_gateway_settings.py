"""Settings of the whole gateway, from two kinds of configuration."""

from datetime import timedelta

import pytest
from tests.support.resources.contour_documents import PROXY, World, world
from tests.support.resources.graph_views import fallback, plain_hosts, secure_hosts

from authplane.controlplane.graph.model.graph_model import ConnectionSettings
from authplane.controlplane.graph.model.upstreams import Breakers
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import (
    DEFAULTS,
    Disabling,
    ExternalNames,
    NameRules,
    Settings,
    read_settings,
)
from authplane.core.names import ObjectName
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault
from authplane.resources.kinds.configuration import Listeners
from authplane.resources.kinds.contour_policies import Authorization, AuthPolicy, ExtensionRef

OURS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: here}
spec:
  contour:
"""
THEIRS = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour, namespace: projectcontour}
spec:
"""
SHARED = """
globalExtAuth: {extensionRef: {name: auth, namespace: default}, authPolicy: {disabled: true}}
httpproxy:
  disablePermitInsecure: true
  rootNamespaces: [roots, more]
  fallbackCertificate: {name: fallback, namespace: roots}
envoy:
  clientCertificate: {name: client, namespace: roots}
  timeouts:
    requestTimeout: 1m
    connectionIdleTimeout: 2m
    streamIdleTimeout: infinity
    maxConnectionDuration: 4m
    delayedCloseTimeout: 5s
    connectionShutdownGracePeriod: 6s
    connectTimeout: 7s
  cluster:
    circuitBreakers: {maxConnections: 1, maxPendingRequests: 2, maxRequests: 3, maxRetries: 4, perHostMaxConnections: 5}
enableExternalNameService: false
"""
OWN = """
allowLocalExternalNames: true
allowInsecureAuthorization: true
requireExtensionGrants: true
allowFailOpen: false
disabling: RootNamespace
maxResponseTimeout: 3s
"""


def ours(text: str) -> str:
    return OURS + "\n".join(f"    {line}" for line in text.splitlines())


def theirs(text: str) -> str:
    return THEIRS + "\n".join(f"  {line}" for line in text.splitlines())


def after(**duration: int) -> Timeout:
    return After(timedelta(**duration))


READ = Settings(
    listeners=Listeners(),
    connections=ConnectionSettings(
        request=after(minutes=1),
        connection_idle=after(minutes=2),
        stream_idle=Disabled(),
        max_connection_duration=after(minutes=4),
        delayed_close=after(seconds=5),
        shutdown_grace_period=after(seconds=6),
    ),
    connect_timeout=after(seconds=7),
    breakers=Breakers(connections=1, pending_requests=2, requests=3, retries=4, connections_per_host=5),
    global_authorization=Authorization(
        extension_ref=ExtensionRef(name="auth", namespace="default"), auth_policy=AuthPolicy(disabled=True)
    ),
    client_certificate=ObjectName("roots", "client"),
    fallback_certificate=ObjectName("roots", "fallback"),
    root_namespaces=frozenset({"roots", "more"}),
    permit_insecure=False,
    route_names=NameRules(allowed=ExternalNames.NOWHERE),
    names=NameRules(allowed=ExternalNames.NOWHERE),
)


def read(made: World) -> Settings | None:
    return read_settings(made.generation.loaded.resources, Reports())


@pytest.mark.parametrize(
    "documents",
    [{"ours": ours(SHARED)}, {"theirs": theirs(SHARED)}, {"ours": ours(SHARED), "theirs": theirs(SHARED)}],
    ids=["ours", "theirs", "the same in both"],
)
def test_shared_settings_may_be_in_either_configuration(documents: dict[str, str]) -> None:
    assert read(world(**documents)) == READ


def test_each_configuration_may_contain_a_part() -> None:
    envoy = SHARED.index("envoy:")
    assert read(world(ours=ours(SHARED[:envoy]), theirs=theirs(SHARED[envoy:]))) == READ


def test_a_setting_that_is_not_set_has_its_default() -> None:
    assert read(world()) == DEFAULTS


def test_our_own_settings_are_read() -> None:
    assert read(world(ours=ours(OWN))) == Settings(
        names=NameRules(allowed=ExternalNames.ANYWHERE),
        insecure_authorization=True,
        extension_grants=True,
        may_fail_open=False,
        disabling=Disabling.ROOT_NAMESPACE,
        longest_check=after(seconds=3),
    )


def test_a_longest_check_without_end_is_no_limit() -> None:
    settings = read(world(ours=ours("maxResponseTimeout: infinity")))
    assert settings is not None
    assert settings.longest_check == UseDefault()


CONFLICTS = {
    "globalExtAuth": ("globalExtAuth: {failOpen: true}", "globalExtAuth: {failOpen: false}"),
    "httpproxy.disablePermitInsecure": (
        "httpproxy: {disablePermitInsecure: true}",
        "httpproxy: {disablePermitInsecure: false}",
    ),
    "httpproxy.rootNamespaces": ("httpproxy: {rootNamespaces: [a]}", "httpproxy: {rootNamespaces: [a, b]}"),
    "httpproxy.fallbackCertificate": (
        "httpproxy: {fallbackCertificate: {name: a, namespace: a}}",
        "httpproxy: {fallbackCertificate: {name: b, namespace: a}}",
    ),
    "envoy.clientCertificate": (
        "envoy: {clientCertificate: {name: a, namespace: a}}",
        "envoy: {clientCertificate: {name: a, namespace: b}}",
    ),
    "envoy.timeouts.connectTimeout": (
        "envoy: {timeouts: {connectTimeout: 1s}}",
        "envoy: {timeouts: {connectTimeout: 2s}}",
    ),
    "envoy.timeouts.requestTimeout": (
        "envoy: {timeouts: {requestTimeout: 1s}}",
        "envoy: {timeouts: {requestTimeout: infinity}}",
    ),
    "envoy.cluster.circuitBreakers": (
        "envoy: {cluster: {circuitBreakers: {maxRequests: 1}}}",
        "envoy: {cluster: {circuitBreakers: {maxRetries: 1}}}",
    ),
    "enableExternalNameService": ("enableExternalNameService: true", "enableExternalNameService: false"),
}


@pytest.mark.parametrize(("field", "texts"), CONFLICTS.items(), ids=CONFLICTS.keys())
def test_two_configurations_that_differ_serve_nothing(field: str, texts: tuple[str, str]) -> None:
    made = world(ours=ours(texts[0]), theirs=theirs(texts[1]))
    message = (
        f"spec.contour.{field} of AuthplaneConfiguration/default/here and spec.{field} of "
        "ContourConfiguration/projectcontour/contour differ. Set the field once, or to the same value."
    )
    assert ("FieldConflict", message) in made.problems("AuthplaneConfiguration")
    assert made.problems("HTTPProxy")[-1] == (
        "ConfigurationNotValid",
        "The AuthplaneConfiguration is not valid, so Envoy serves no host. Correct it.",
    )
    assert (plain_hosts(made.graph), secure_hosts(made.graph), fallback(made.graph)) == ((), (), None)


def test_one_duration_in_two_spellings_is_the_same() -> None:
    made = world(
        ours=ours("envoy: {timeouts: {requestTimeout: 60s}}"), theirs=theirs("envoy: {timeouts: {requestTimeout: 1m}}")
    )
    assert made.problems("AuthplaneConfiguration") == []
    assert made.graph.connections == ConnectionSettings(request=after(minutes=1))


BAD = {
    "no unit": (
        "requestTimeout: '30'",
        'unable to parse timeout string "30": time: invalid duration "30". Use one such as "10s".',
    ),
    "no end to connecting": (
        "connectTimeout: infinity",
        '"infinity" is not allowed: this timeout cannot be disabled. Set a duration.',
    ),
    "no end to closing": (
        "connectionShutdownGracePeriod: infinite",
        '"infinite" is not allowed: this timeout cannot be disabled. Set a duration.',
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_duration_that_cannot_be_used_serves_nothing(text: str, message: str) -> None:
    made = world(theirs=theirs(f"envoy: {{timeouts: {{{text}}}}}"))
    assert made.problems("ContourConfiguration") == [("TimeoutPolicyNotValid", message)]
    assert made.problems("HTTPProxy") == [
        ("ConfigurationNotValid", "The ContourConfiguration is not valid, so Envoy serves no host. Correct it.")
    ]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def test_a_longest_check_that_is_no_duration_serves_nothing() -> None:
    made = world(ours=ours("maxResponseTimeout: long"))
    assert [reason for reason, _ in made.problems("AuthplaneConfiguration")] == ["TimeoutPolicyNotValid"]
    assert secure_hosts(made.graph) == ()


@pytest.mark.parametrize(
    ("kind", "document"),
    [("AuthplaneConfiguration", ours("httpproxi: {}")), ("ContourConfiguration", theirs("httpproxi: {}"))],
)
def test_a_configuration_that_cannot_be_read_serves_nothing(kind: str, document: str) -> None:
    made = world(configuration=document)
    assert made.problems("HTTPProxy") == [
        ("ConfigurationNotValid", f"The {kind} is not valid, so Envoy serves no host. Correct it.")
    ]
    assert (plain_hosts(made.graph), secure_hosts(made.graph)) == ((), ())


def test_the_connect_timeout_reaches_every_cluster() -> None:
    made = world(theirs=theirs("envoy: {timeouts: {connectTimeout: 3s}}"), proxy=PROXY)
    assert {cluster.name: cluster.connect_timeout for cluster in made.graph.clusters} == {
        "extension/default/auth": after(seconds=3),
        "service/default/echo/80": after(seconds=3),
    }
