"""Global authorization: it holds for every host that names no service of its own, or the host is withdrawn."""

from datetime import timedelta
from typing import Final

import pytest
from tests.support.resources.contour_documents import AUTH, EXTENSION, PROXY, World, whole
from tests.support.resources.graph_views import plain_hosts, secure_hosts

from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    OverGrpc,
    Unprotected,
)
from authplane.core.timeouts import After

BLOCK: Final = "    authorization:\n      extensionRef: {name: auth}\n"
SECURE: Final = PROXY.replace(BLOCK, "")
PLAIN: Final = (
    SECURE.replace("    tls: {secretName: tls}\n", "").replace("web.example", "plain.example").replace("web", "plain")
)
UNAVAILABLE: Final = (
    "Global authorization protects this HTTPProxy, but Envoy cannot enforce it. See the status of the configuration."
)


def ours(block: str) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: gateway}}
spec:
  contour:
    globalExtAuth: {block}
"""


def contours(block: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {{name: contour}}
spec:
  globalExtAuth: {block}
"""


def world(configuration: str, **changed: str) -> World:
    parts = whole() | {"proxy": SECURE, "plain": PLAIN, "configuration": configuration} | changed
    return World(text for text in parts.values() if text)


def checked(made: World) -> dict[str, AuthorizationService | None]:
    """Return who checks the first route of every host, by listener and name."""
    hosts = {f"https {each.host.name}": each.host for each in secure_hosts(made.graph)}
    hosts |= {f"http {each.name}": each for each in plain_hosts(made.graph)}
    found = {name: host.routes[0].authorization for name, host in hosts.items()}
    return {name: each.service if isinstance(each, Enforced) else None for name, each in sorted(found.items())}


SERVICE: Final = AuthorizationService(
    cluster="extension/default/auth",
    protocol=OverGrpc(authority="auth.example"),
    timeout=After(timedelta(seconds=3)),
    on_failure=FailOpen(),
    body=CheckedBody(most_bytes=10, partial=True),
)
FULL: Final = (
    "{extensionRef: {name: auth, namespace: default}, responseTimeout: 3s, failOpen: true, "
    "withRequestBody: {maxRequestBytes: 10, allowPartialMessage: true}}"
)


@pytest.mark.requirement("GL-1")
@pytest.mark.requirement("GL-2")
@pytest.mark.requirement("GL-5")
@pytest.mark.parametrize("written", [ours(FULL), contours(FULL), ours(FULL) + "---" + contours(FULL)])
def test_hosts_with_and_without_tls_ask_the_global_service_in_the_same_way(written: str) -> None:
    made = world(written)
    assert made.problems("HTTPProxy") == []
    # The redirect to HTTPS is nothing to be checked.
    assert checked(made) == {"http plain.example": SERVICE, "http web.example": None, "https web.example": SERVICE}


@pytest.mark.requirement("GL-2")
def test_a_host_with_a_service_of_its_own_asks_that_one() -> None:
    other = ("metadata: {name: auth", "metadata: {name: other")
    made = world(
        ours("{extensionRef: {name: auth}}"),
        proxy=PROXY.replace("{name: auth}", "{name: other}"),
        other=EXTENSION.replace(*other),
    )
    found = checked(made)
    assert found["https web.example"] is not None
    assert found["https web.example"].cluster == "extension/default/other"
    assert found["http plain.example"] is not None
    assert found["http plain.example"].cluster == "extension/default/auth"


@pytest.mark.requirement("AZ-3")
def test_a_reference_without_namespace_stays_in_the_configurations_own() -> None:
    made = world(contours("{extensionRef: {name: auth}}"))
    assert checked(made)["http plain.example"] is not None
    elsewhere = contours("{extensionRef: {name: auth}}").replace("{name: contour}", "{name: contour, namespace: infra}")
    assert world(elsewhere).problems("ContourConfiguration") == [
        (
            "ExtensionServiceNotFound",
            'globalExtAuth: ExtensionService "infra/auth" not found. Create it, or correct the name.',
        )
    ]


def test_two_configurations_that_mean_different_services_withdraw_everything() -> None:
    infra = contours("{extensionRef: {name: auth}}").replace("{name: contour}", "{name: contour, namespace: infra}")
    here = ("metadata: {name: auth", "metadata: {namespace: infra, name: auth")
    made = world(
        ours("{extensionRef: {name: auth}}") + "---" + infra,
        there=EXTENSION.replace(*here).replace("  validation: {caSecret: ca, subjectName: auth.example}\n", ""),
        service=AUTH.replace(*here),
    )
    assert checked(made) == {}
    told = (
        "FieldConflict",
        "Two configurations name this service without a namespace and so refer to different namespaces. Set "
        "namespace in both.",
    )
    assert (made.problems("AuthplaneConfiguration"), made.problems("ContourConfiguration")) == ([told], [told])


MISTAKES: Final = {
    "not there": (
        "{extensionRef: {name: missing, namespace: default}}",
        "ExtensionServiceNotFound",
        'globalExtAuth: ExtensionService "default/missing" not found. Create it, or correct the name.',
    ),
    "no name": (
        "{failOpen: true}",
        "AuthMissingExtensionRef",
        "globalExtAuth does not name an authorization service. Set extensionRef.",
    ),
    "not a duration": (
        "{extensionRef: {name: auth, namespace: default}, responseTimeout: soon}",
        "AuthResponseTimeoutInvalid",
        'globalExtAuth.responseTimeout is invalid: unable to parse timeout string "soon": '
        'time: invalid duration "soon"',
    ),
    "context over HTTP": (
        "{extensionRef: {name: auth, namespace: default}, serviceType: http, authPolicy: {context: {a: b}}}",
        "AuthContextForHTTP",
        "globalExtAuth.authPolicy.context are only applied to grpc service type",
    ),
}


@pytest.mark.requirement("GL-4")
@pytest.mark.parametrize(("block", "reason", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_service_that_cannot_be_asked_withdraws_the_hosts_that_would(block: str, reason: str, message: str) -> None:
    made = world(ours(block))
    assert made.problems("AuthplaneConfiguration") == [(reason, message)]
    assert made.problems("HTTPProxy", "web") == [("GlobalAuthorizationNotValid", UNAVAILABLE)]
    assert made.problems("HTTPProxy", "plain") == [("GlobalAuthorizationNotValid", UNAVAILABLE)]
    assert checked(made) == {}


@pytest.mark.requirement("GL-4")
def test_a_broken_extension_service_withdraws_the_hosts_until_it_is_mended() -> None:
    block = ours("{extensionRef: {name: auth}}")
    assert checked(world(block, extension=EXTENSION.replace("9443", "1"))) == {}
    assert len(checked(world(block))) == 3
    assert checked(world(block, extension="")) == {}


@pytest.mark.requirement("GL-3")
@pytest.mark.requirement("GL-4")
def test_a_host_that_does_not_need_the_broken_service_stays() -> None:
    opted_out = "    authorization: {authPolicy: {disabled: true}}\n  routes:\n"
    made = world(
        ours("{extensionRef: {name: missing}}"), proxy=SECURE.replace("  routes:\n", opted_out), plain=PROXY_OF_OWN
    )
    assert [each.name for each in plain_hosts(made.graph)] == ["own.example", "web.example"]
    secure = made.secure()
    assert secure is not None
    assert [route.authorization for route in secure.host.routes] == [Disabled()]
    assert made.problems("HTTPProxy") == []


PROXY_OF_OWN: Final = PROXY.replace("web.example", "own.example").replace("{name: web}", "{name: own}")


@pytest.mark.requirement("GL-3")
@pytest.mark.requirement("GL-4")
def test_one_route_that_needs_the_broken_service_withdraws_its_host() -> None:
    opted_in = SECURE + "  - conditions: [{prefix: /in}]\n    authPolicy: {}\n    services: [{name: echo, port: 80}]\n"
    made = world(ours("{extensionRef: {name: missing}, authPolicy: {disabled: true}}"), proxy=opted_in)
    assert [each.name for each in plain_hosts(made.graph)] == ["plain.example"]
    assert made.problems("HTTPProxy") == [("GlobalAuthorizationNotValid", UNAVAILABLE)]


def test_what_counts_only_for_a_service_of_its_own_is_named() -> None:
    block = (
        "    authorization: {failOpen: true, responseTimeout: 1s, serviceType: grpc, withRequestBody: {}, "
        "authPolicy: {context: {a: b}}}\n  routes:\n"
    )
    made = world(ours("{extensionRef: {name: auth}}"), proxy=SECURE.replace("  routes:\n", block))
    assert made.warnings("HTTPProxy", "web") == [
        (
            "IgnoredField",
            f"The global authorization protects this host, so {field} has no effect. Remove it, or set extensionRef.",
        )
        for field in ("failOpen", "responseTimeout", "serviceType", "withRequestBody")
    ]
    found = checked(made)["https web.example"]
    assert found is not None
    assert found.on_failure == FailClosed()


def test_context_of_a_host_does_not_reach_a_global_service_asked_over_http() -> None:
    block = "    authorization: {authPolicy: {context: {a: b}}}\n  routes:\n"
    made = world(ours("{extensionRef: {name: auth}, serviceType: http}"), proxy=SECURE.replace("  routes:\n", block))
    assert [reason for reason, _ in made.problems("HTTPProxy", "web")] == ["AuthContextForHTTP"]
    assert made.secure() is None


def test_without_global_authorization_no_check_is_sent() -> None:
    made = world("")
    secure = made.secure()
    assert secure is not None
    assert [route.authorization for route in secure.host.routes] == [Unprotected()]
