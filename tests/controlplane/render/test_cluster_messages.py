"""Clusters as Envoy gets them, and Envoy's own judgement of every kind."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from google.protobuf.json_format import MessageToDict
from tests.support.certificates import authority, server
from tests.support.envoy.validation import validate

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.port_model import Address, Certificate
from authplane.controlplane.graph.model.upstreams import (
    Balancing,
    Breakers,
    Cluster,
    EndpointGroup,
    ExtensionCluster,
    ExternalName,
    HttpVersion,
    Plaintext,
    ServiceCluster,
    TlsLimits,
    UnverifiedTls,
    VerifiedTls,
)
from authplane.controlplane.render.cluster_messages import has_endpoints, render_cluster, render_endpoints
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.render.rendered import render_graph
from authplane.core.names import ObjectName
from authplane.core.secret import Secret
from authplane.core.timeouts import After, Disabled
from authplane.resources.kinds import contour_settings
from authplane.resources.service_endpoints import Endpoint

AUTH: Final = ObjectName("default", "auth")
OTHER: Final = ObjectName("default", "other")
CLIENT: Final = ObjectName("certs", "envoy")
OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def group(service: ObjectName, weight: int, *addresses: str) -> EndpointGroup:
    return EndpointGroup(
        service=service, weight=weight, endpoints=tuple(Endpoint(address, 9443) for address in addresses)
    )


EXTENSION: Final = ExtensionCluster(
    name="extension/default/auth",
    object_name=AUTH,
    version=HttpVersion.HTTP2,
    tls=Plaintext(),
    authority="extension.default.auth",
    destinations=(group(AUTH, 1, "10.0.0.2"),),
)
SERVICE: Final = ServiceCluster(
    name="service/default/echo/80",
    version=HttpVersion.HTTP1,
    tls=Plaintext(),
    destinations=(group(ObjectName("default", "echo"), 1, "10.0.0.1"),),
)
OUTSIDE: Final = replace(
    EXTENSION,
    destinations=(
        ExternalName(service=AUTH, weight=3, host="auth.example.com", port=443),
        ExternalName(service=OTHER, weight=1, host="other.example.com", port=9443),
    ),
)
VERIFIED: Final = VerifiedTls(
    ca=authority().certificate,
    subject_names=("auth.example", "other.example"),
    server_name="tls.example",
    client_certificate=CLIENT,
)


def rendered(cluster: Cluster) -> Any:
    return MessageToDict(render_cluster(cluster))


def context(cluster: Cluster) -> Any:
    socket = rendered(cluster)["transportSocket"]
    assert socket["name"] == "envoy.transport_sockets.tls"
    return {key: value for key, value in socket["typedConfig"].items() if key != "@type"}


def options(cluster: Cluster) -> Any:
    held = rendered(cluster)["typedExtensionProtocolOptions"][OPTIONS]
    return {key: value for key, value in held.items() if key != "@type"}


def locality(name: str, weight: int, *addresses: tuple[str, int]) -> dict[str, Any]:
    return {
        "locality": {"subZone": name},
        "loadBalancingWeight": weight,
        "lbEndpoints": [
            {"endpoint": {"address": {"socketAddress": {"address": address, "portValue": port}}}}
            for address, port in addresses
        ],
    }


@pytest.mark.requirement("EN-6")
@pytest.mark.requirement("ES-8")
def test_an_extension_cluster_has_a_stable_name_and_its_endpoints_come_over_eds() -> None:
    assert rendered(EXTENSION) == {
        "name": "extension/default/auth",
        "altStatName": "extension_default_auth",
        "type": "EDS",
        "edsClusterConfig": {
            "edsConfig": {"ads": {}, "resourceApiVersion": "V3"},
            "serviceName": "extension/default/auth",
        },
        "connectTimeout": "2s",
        "perConnectionBufferLimitBytes": 32768,
        "commonLbConfig": {"healthyPanicThreshold": {}, "localityWeightedLbConfig": {}},
        "typedExtensionProtocolOptions": {
            OPTIONS: {
                "@type": f"type.googleapis.com/{OPTIONS}",
                "explicitHttpConfig": {"http2ProtocolOptions": {}},
            }
        },
    }


@pytest.mark.requirement("ES-8")
def test_each_version_of_http_is_set_explicitly() -> None:
    assert options(EXTENSION) == {"explicitHttpConfig": {"http2ProtocolOptions": {}}}
    assert options(replace(EXTENSION, version=HttpVersion.HTTP1)) == {"explicitHttpConfig": {"httpProtocolOptions": {}}}


# --- Destinations


@pytest.mark.requirement("ES-21")
@pytest.mark.requirement("ES-23")
def test_names_outside_are_looked_up_by_the_proxy_with_their_weights_and_nothing_comes_over_eds() -> None:
    got = rendered(OUTSIDE)
    assert got["type"] == "STRICT_DNS"
    assert "edsClusterConfig" not in got
    assert got["loadAssignment"] == {
        "clusterName": "extension/default/auth",
        "endpoints": [
            locality("default/auth", 3, ("auth.example.com", 443)),
            locality("default/other", 1, ("other.example.com", 9443)),
        ],
    }
    assert got["commonLbConfig"] == {"healthyPanicThreshold": {}, "localityWeightedLbConfig": {}}
    assert not has_endpoints(OUTSIDE)


LOCALITIES: Final[dict[str, tuple[tuple[EndpointGroup, ...], list[dict[str, Any]]]]] = {
    "a locality for each Service": (
        (group(AUTH, 3, "10.0.0.2", "10.0.0.3"), group(OTHER, 1, "10.0.0.4")),
        [
            locality("default/auth", 3, ("10.0.0.2", 9443), ("10.0.0.3", 9443)),
            locality("default/other", 1, ("10.0.0.4", 9443)),
        ],
    ),
    "a Service without endpoints is left out": (
        (group(AUTH, 3), group(OTHER, 1, "10.0.0.4")),
        [locality("default/other", 1, ("10.0.0.4", 9443))],
    ),
    "a Service without weight is left out, even if it is the only one with endpoints": (
        (group(AUTH, 1), group(OTHER, 0, "10.0.0.4")),
        [],
    ),
    "one Service twice is two localities": (
        (group(AUTH, 1, "10.0.0.2"), group(AUTH, 2, "10.0.0.3")),
        [locality("default/auth", 1, ("10.0.0.2", 9443)), locality("default/auth#2", 2, ("10.0.0.3", 9443))],
    ),
}


@pytest.mark.requirement("EN-7")
@pytest.mark.requirement("ES-23")
@pytest.mark.parametrize(("destinations", "want"), LOCALITIES.values(), ids=LOCALITIES.keys())
def test_weights_become_those_of_localities(
    destinations: tuple[EndpointGroup, ...], want: list[dict[str, Any]]
) -> None:
    told = render_endpoints(replace(EXTENSION, destinations=destinations))
    assert told is not None
    assert MessageToDict(told) == {"clusterName": "extension/default/auth"} | ({"endpoints": want} if want else {})


# --- TLS

PARAMETERS: Final = {"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"}


@pytest.mark.requirement("ES-14")
@pytest.mark.requirement("ES-15")
@pytest.mark.requirement("ES-18")
def test_tls_verifies_by_ca_and_names_asks_for_one_and_shows_a_certificate_from_sds() -> None:
    got = context(replace(EXTENSION, tls=VERIFIED))
    ca = got["commonTlsContext"]["validationContext"]["trustedCa"].pop("inlineBytes")
    assert ca
    assert got == {
        "sni": "tls.example",
        "commonTlsContext": {
            "alpnProtocols": ["h2"],
            "tlsParams": PARAMETERS,
            "tlsCertificateSdsSecretConfigs": [
                {"name": "certs/envoy", "sdsConfig": {"ads": {}, "resourceApiVersion": "V3"}}
            ],
            "validationContext": {
                "trustedCa": {},
                "matchTypedSubjectAltNames": [
                    {"sanType": "DNS", "matcher": {"exact": "auth.example"}},
                    {"sanType": "DNS", "matcher": {"exact": "other.example"}},
                ],
            },
        },
    }


@pytest.mark.requirement("ES-15")
def test_tls_without_validation_asks_for_no_name_unless_it_is_given_one() -> None:
    assert context(replace(EXTENSION, tls=UnverifiedTls())) == {
        "commonTlsContext": {"alpnProtocols": ["h2"], "tlsParams": PARAMETERS}
    }
    assert context(replace(EXTENSION, tls=UnverifiedTls(server_name="a.example")))["sni"] == "a.example"


@pytest.mark.requirement("ES-19")
def test_tls_negotiates_what_it_may() -> None:
    limits = TlsLimits(minimum="1.2", maximum="1.2", ciphers=("AES128-SHA", "AES256-SHA"), curves=("P-256",))
    for tls in (replace(VERIFIED, limits=limits), UnverifiedTls(limits=limits)):
        assert context(replace(EXTENSION, tls=tls))["commonTlsContext"]["tlsParams"] == {
            "tlsMinimumProtocolVersion": "TLSv1_2",
            "tlsMaximumProtocolVersion": "TLSv1_2",
            "cipherSuites": ["AES128-SHA", "AES256-SHA"],
            "ecdhCurves": ["P-256"],
        }


def test_tls_to_a_service_that_speaks_http_1_negotiates_nothing() -> None:
    assert context(replace(SERVICE, tls=UnverifiedTls())) == {"commonTlsContext": {"tlsParams": PARAMETERS}}


# --- Policies


@pytest.mark.requirement("ES-25")
@pytest.mark.parametrize("cluster", [EXTENSION, SERVICE], ids=["extension", "service"])
def test_the_three_ways_to_balance(cluster: Cluster) -> None:
    names = [rendered(replace(cluster, balancing=way)).get("lbPolicy", "ROUND_ROBIN") for way in Balancing]
    assert names == ["ROUND_ROBIN", "RANDOM", "LEAST_REQUEST"]


LIMITS: Final = {
    "all": (
        Breakers(connections=1, pending_requests=2, requests=3, retries=4, connections_per_host=5),
        {
            "thresholds": [
                {
                    "maxConnections": 1,
                    "maxPendingRequests": 2,
                    "maxRequests": 3,
                    "maxRetries": 4,
                    "trackRemaining": True,
                }
            ],
            "perHostThresholds": [{"maxConnections": 5, "trackRemaining": True}],
        },
    ),
    "some": (
        Breakers(requests=3),
        {
            "thresholds": [{"maxRequests": 3, "trackRemaining": True}],
            "perHostThresholds": [{"trackRemaining": True}],
        },
    ),
    "none": (Breakers(), None),
}


@pytest.mark.requirement("ES-30")
@pytest.mark.parametrize("cluster", [EXTENSION, SERVICE], ids=["extension", "service"])
@pytest.mark.parametrize(("breakers", "want"), LIMITS.values(), ids=LIMITS.keys())
def test_limits_that_are_zero_are_left_to_envoy(cluster: Cluster, breakers: Breakers, want: dict[str, Any]) -> None:
    assert rendered(replace(cluster, breakers=breakers)).get("circuitBreakers") == want


@pytest.mark.requirement("ES-28")
@pytest.mark.requirement("ES-29")
def test_timeouts_of_connections() -> None:
    after = After(timedelta(seconds=90))
    assert rendered(replace(EXTENSION, connect_timeout=after))["connectTimeout"] == "90s"
    assert rendered(replace(EXTENSION, connect_timeout=Disabled()))["connectTimeout"] == "86400s"
    idle = [
        options(replace(EXTENSION, idle_connection_timeout=each))["commonHttpProtocolOptions"]
        for each in (after, Disabled())
    ]
    assert idle == [{"idleTimeout": "90s"}, {"idleTimeout": "0s"}]


# --- Envoy's judgement

VARIANTS: Final[tuple[Cluster, ...]] = (
    replace(EXTENSION, name="h2c"),
    replace(EXTENSION, name="http1", version=HttpVersion.HTTP1),
    replace(EXTENSION, name="verified", tls=VERIFIED),
    replace(EXTENSION, name="anybody", tls=UnverifiedTls(server_name="a.example", client_certificate=CLIENT)),
    *(
        replace(EXTENSION, name=f"cipher-{index}", tls=UnverifiedTls(limits=TlsLimits(ciphers=(cipher,))))
        for index, cipher in enumerate(contour_settings.CIPHERS.values)
    ),
    *(
        replace(EXTENSION, name=f"curve-{curve}", tls=UnverifiedTls(limits=TlsLimits(curves=(curve,))))
        for curve in contour_settings.CURVES.values
    ),
    replace(EXTENSION, name="twice", destinations=(group(AUTH, 1, "10.0.0.2"), group(AUTH, 2, "10.0.0.3"))),
    replace(EXTENSION, name="heavy", destinations=(group(AUTH, 2**32 - 2, "10.0.0.2"), group(OTHER, 1, "10.0.0.3"))),
    replace(EXTENSION, name="empty", destinations=(group(AUTH, 1),)),
    replace(EXTENSION, name="limited", breakers=LIMITS["all"][0]),
    replace(EXTENSION, name="partly-limited", breakers=LIMITS["some"][0]),
    replace(EXTENSION, name="patient", connect_timeout=Disabled(), idle_connection_timeout=Disabled()),
    replace(OUTSIDE, name="outside", tls=VERIFIED),
    replace(
        OUTSIDE, name="addresses", destinations=(ExternalName(service=AUTH, weight=1, host="2001:db8::7", port=1),)
    ),
    *(replace(EXTENSION, name=f"by-{way}", balancing=way) for way in Balancing),
    SERVICE,
    replace(SERVICE, name="service-h2", version=HttpVersion.HTTP2, tls=VERIFIED),
    replace(SERVICE, name="service-tls", tls=UnverifiedTls()),
    replace(SERVICE, name="service-outside", destinations=OUTSIDE.destinations[:1]),
)


@pytest.mark.real
@pytest.mark.requirement("X15")
async def test_envoy_accepts_every_kind_of_cluster() -> None:
    pair = server("envoy.example")
    graph = Graph(
        http=Address("127.0.0.1", 1),
        https=Address("127.0.0.1", 2),
        clusters=VARIANTS,
        certificates=(Certificate(name=CLIENT, chain=pair.certificate, key=Secret(pair.key.reveal())),),
    )
    verdict = await validate(json_text(static_bootstrap(render_graph(graph))))
    assert verdict.ok, verdict.output
