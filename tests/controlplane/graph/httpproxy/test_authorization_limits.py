"""What an operator keeps owners of HTTPProxies from doing: it costs them their host, and never opens anything."""

from typing import Final, NamedTuple

import pytest
from tests.support.certificates import ca_secret
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION, PROXY, World, whole

from authplane.controlplane.graph.model.route_authorization import (
    Disabled,
    Enforced,
    FailClosed,
    RouteAuthorization,
    Shadow,
)


def configuration(contour: str) -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: gateway}}
spec:
  contour: {contour}
"""


def world(contour: str, **changed: str) -> World:
    parts = whole() | {"configuration": configuration(contour)} | changed
    return World(text for text in parts.values() if text)


def with_block(block: str) -> str:
    return PROXY.replace("      extensionRef: {name: auth}\n", f"      extensionRef: {{name: auth}}\n{block}")


# --- References to another namespace

ELSEWHERE: Final = ("metadata: {name: auth", "metadata: {namespace: infra, name: auth")
GRANT: Final = """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: grant, namespace: infra}
spec:
  from: [{group: projectcontour.io, kind: HTTPProxy, namespace: default}]
  to: [{group: projectcontour.io, kind: ExtensionService}]
"""
NOT_PERMITTED: Final = (
    "RefNotPermitted",
    'Spec.Virtualhost.Authorization.ServiceRef extension service "infra/auth" is in another '
    'namespace, and no ReferenceGrant lets HTTPProxies of "default" refer to it. '
    'Add a ReferenceGrant in namespace "infra".',
)
GRANTS: Final = {
    "no grant": ("", False),
    "a grant": (GRANT, True),
    "a grant for this service": (GRANT.replace("ExtensionService}", "ExtensionService, name: auth}"), True),
    "a grant for another service": (GRANT.replace("ExtensionService}", "ExtensionService, name: other}"), False),
    "a grant for another namespace": (GRANT.replace("namespace: default", "namespace: shop"), False),
    "a grant in another namespace": (GRANT.replace("namespace: infra", "namespace: default"), False),
    "a grant for another kind": (GRANT.replace("kind: HTTPProxy", "kind: HTTPRoute"), False),
    "a grant for another group": (GRANT.replace("to: [{group: projectcontour.io", "to: [{group: ''"), False),
    "a grant from another group": (GRANT.replace("from: [{group: projectcontour.io", "from: [{group: ''"), False),
}


def across(contour: str, grant: str) -> World:
    return world(
        contour,
        proxy=PROXY.replace("{name: auth}", "{name: auth, namespace: infra}"),
        auth=AUTH.replace(*ELSEWHERE),
        extension=EXTENSION.replace(*ELSEWHERE),
        ca=ca_secret("ca", namespace="infra"),
        grant=grant,
    )


@pytest.mark.requirement("T01")
@pytest.mark.requirement("T04")
@pytest.mark.parametrize(("grant", "allowed"), GRANTS.values(), ids=GRANTS.keys())
def test_a_service_of_another_namespace_needs_a_grant_if_the_operator_says_so(grant: str, *, allowed: bool) -> None:
    made = across("{requireExtensionGrants: true}", grant)
    assert made.problems("HTTPProxy") == ([] if allowed else [NOT_PERMITTED])
    assert (made.secure() is not None, made.plain() is not None) == (allowed, allowed)
    assert across("{}", grant).problems("HTTPProxy") == []


@pytest.mark.requirement("T01")
def test_without_a_grant_nobody_learns_what_is_there() -> None:
    made = world(
        "{requireExtensionGrants: true}", proxy=PROXY.replace("{name: auth}", "{name: auth, namespace: infra}")
    )
    assert made.problems("HTTPProxy") == [NOT_PERMITTED]


def test_a_service_of_the_same_namespace_needs_no_grant() -> None:
    assert world("{requireExtensionGrants: true}").problems("HTTPProxy") == []


def test_the_operators_own_reference_needs_no_grant() -> None:
    made = world(
        "{requireExtensionGrants: true, globalExtAuth: {extensionRef: {name: auth, namespace: infra}}}",
        proxy=PROXY.replace("    authorization:\n      extensionRef: {name: auth}\n", ""),
        auth=AUTH.replace(*ELSEWHERE),
        extension=EXTENSION.replace(*ELSEWHERE),
        ca=ca_secret("ca", namespace="infra"),
    )
    assert made.problems("HTTPProxy") == []
    assert made.secure() is not None


# --- Limits


class Limit(NamedTuple):
    contour: str
    block: str
    reason: str
    message: str


LIMITS: Final = {
    "failing open": Limit(
        "{allowFailOpen: false}",
        "      failOpen: true\n",
        "AuthFailOpenNotPermitted",
        "failOpen is not permitted. Remove it, or ask the operator to change spec.contour.allowFailOpen of the "
        "AuthplaneConfiguration.",
    ),
    "disabling": Limit(
        "{disabling: Nobody}",
        "      authPolicy: {disabled: true}\n",
        "AuthDisablingNotPermitted",
        "Disabling authorization is not permitted. Remove the field, or ask the operator to change "
        "spec.contour.disabling of the AuthplaneConfiguration.",
    ),
    "a long check": Limit(
        "{maxResponseTimeout: 2s}",
        "      responseTimeout: 2001ms\n",
        "AuthResponseTimeoutNotPermitted",
        "The configuration limits a check to 2 s. Lower the timeout, or ask the operator to change "
        "spec.contour.maxResponseTimeout of the AuthplaneConfiguration.",
    ),
    "a check without end": Limit(
        "{maxResponseTimeout: 2s}",
        "      responseTimeout: infinity\n",
        "AuthResponseTimeoutNotPermitted",
        "The configuration limits a check to 2 s. Lower the timeout, or ask the operator to change "
        "spec.contour.maxResponseTimeout of the AuthplaneConfiguration.",
    ),
}


@pytest.mark.requirement("T05")
@pytest.mark.requirement("AZ-15")
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS.keys())
def test_what_is_not_allowed_withdraws_the_host(limit: Limit) -> None:
    made = world(limit.contour, proxy=with_block(limit.block))
    assert made.problems("HTTPProxy") == [(limit.reason, limit.message)]
    assert (made.secure(), made.plain()) == (None, None)
    assert world("{}", proxy=with_block(limit.block)).problems("HTTPProxy") == []


@pytest.mark.requirement("T05")
def test_a_check_that_is_long_by_its_extension_service_is_too_long_as_well() -> None:
    extension = EXTENSION + "  timeoutPolicy: {response: 1h}\n"
    made = world("{maxResponseTimeout: 2s}", extension=extension)
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["AuthResponseTimeoutNotPermitted"]
    assert world("{maxResponseTimeout: 2s}", proxy=with_block("      responseTimeout: 2s\n")).secure() is not None


ROUTE_OFF: Final = PROXY.replace("  - services:", "  - authPolicy: {disabled: true}\n    services:")


@pytest.mark.requirement("T05")
@pytest.mark.requirement("E30")
@pytest.mark.parametrize(("who", "allowed"), [("Anyone", True), ("RootNamespace", True), ("Nobody", False)])
def test_a_route_of_the_root_may_be_disabled_by_whom_the_operator_lets(who: str, *, allowed: bool) -> None:
    made = world(f"{{disabling: {who}}}", proxy=ROUTE_OFF)
    secure = made.secure()
    if allowed:
        assert made.problems("HTTPProxy") == []
        assert secure is not None
        assert secure.host.routes[0].authorization == Disabled()
    else:
        assert [reason for reason, _ in made.problems("HTTPProxy")] == ["AuthDisablingNotPermitted"]
        assert (secure, made.plain()) == (None, None)


ROOT: Final = (
    PROXY.split("  routes:\n")[0]
    + "  includes:\n  - {name: part, namespace: tenant, conditions: [{prefix: /part}]}\n"
    + "  routes:\n  - services: [{name: echo, port: 80}]\n"
)
PART: Final = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: part, namespace: tenant}
spec:
  routes:
  - services: [{name: echo, port: 80}]
    authPolicy: {disabled: true}
---
""" + ECHO.replace("metadata: {name: echo", "metadata: {namespace: tenant, name: echo")


@pytest.mark.requirement("T05")
@pytest.mark.requirement("E30")
@pytest.mark.parametrize("who", ["RootNamespace", "Nobody"])
def test_an_included_route_of_another_namespace_cannot_be_disabled(who: str) -> None:
    made = world(f"{{disabling: {who}}}", proxy=ROOT, part=PART)
    assert [reason for reason, _ in made.problems("HTTPProxy", "part")] == ["AuthDisablingNotPermitted"]
    assert made.problems("HTTPProxy", "web") == []
    secure = made.secure()
    assert secure is not None
    assert all(isinstance(route.authorization, Enforced) for route in secure.host.routes)


def test_an_included_route_of_another_namespace_can_be_disabled_by_default() -> None:
    secure = world("{}", proxy=ROOT, part=PART).secure()
    assert secure is not None
    assert Disabled() in {route.authorization for route in secure.host.routes}


@pytest.mark.parametrize("who", ["Anyone", "RootNamespace", "Nobody"])
def test_saying_again_what_the_operator_disabled_is_no_offence(who: str) -> None:
    bare = ROUTE_OFF.replace("    authorization:\n      extensionRef: {name: auth}\n", "")
    contour = f"{{disabling: {who}, globalExtAuth: {{extensionRef: {{name: auth}}, authPolicy: {{disabled: true}}}}}}"
    host_off = bare.replace("  routes:\n", "    authorization: {authPolicy: {disabled: true}}\n  routes:\n")
    for written in (bare, host_off):
        made = world(contour, proxy=written)
        assert made.problems("HTTPProxy") == []


def test_the_operators_own_choices_are_not_limited() -> None:
    bare = PROXY.replace("    authorization:\n      extensionRef: {name: auth}\n", "")
    made = world(
        "{allowFailOpen: false, maxResponseTimeout: 1s, globalExtAuth: "
        "{extensionRef: {name: auth}, failOpen: true, responseTimeout: 1h}}",
        proxy=bare,
    )
    assert made.problems("HTTPProxy") == []
    assert made.secure() is not None


# --- Shadow mode

SHADOW: Final = PROXY.replace(
    "metadata: {name: web}", "metadata: {name: web, annotations: {authplane.dev/authorization-mode: Shadow}}"
)
WARNING: Final = (
    "AuthShadow",
    "Authorization is not enforced: Envoy sends checks, counts the decisions and allows every "
    "request. Ignore this if intended.",
)


def test_a_host_in_shadow_mode_says_that_nothing_is_enforced() -> None:
    made = world("{}", proxy=SHADOW)
    assert (made.problems("HTTPProxy"), made.warnings("HTTPProxy")) == ([], [WARNING])
    secure = made.secure()
    assert secure is not None
    [route] = secure.host.routes
    assert isinstance(route.authorization, Enforced)
    assert route.authorization.service.on_failure == Shadow()


def test_a_host_under_global_authorization_can_be_in_shadow_mode_too() -> None:
    made = world(
        "{globalExtAuth: {extensionRef: {name: auth}}}",
        proxy=SHADOW.replace("    authorization:\n      extensionRef: {name: auth}\n", ""),
    )
    assert made.warnings("HTTPProxy") == [WARNING]


@pytest.mark.requirement("T05")
@pytest.mark.parametrize("contour", ["{allowFailOpen: false}", "{disabling: Nobody}"])
def test_shadow_mode_is_refused_where_authorization_must_be_enforced(contour: str) -> None:
    made = world(contour, proxy=SHADOW)
    assert made.problems("HTTPProxy") == [
        (
            "AuthShadowNotPermitted",
            "Shadow mode is not permitted. Remove the annotation, or ask the operator to change "
            f"spec.contour.{contour[1:].partition(':')[0]} of the AuthplaneConfiguration.",
        )
    ]
    assert (made.secure(), made.plain()) == (None, None)


def test_an_unknown_mode_is_an_error() -> None:
    made = world("{}", proxy=SHADOW.replace("Shadow", "shadow"))
    assert made.problems("HTTPProxy") == [
        (
            "AuthModeNotValid",
            'Annotation authplane.dev/authorization-mode has the unsupported value "shadow". Supported: Enforce, '
            "Shadow.",
        )
    ]
    assert made.secure() is None
    assert world("{}", proxy=SHADOW.replace("Shadow", "Enforce")).problems("HTTPProxy") == []


def test_shadow_mode_without_authorization_has_no_effect_and_says_so() -> None:
    made = world("{}", proxy=SHADOW.replace("    authorization:\n      extensionRef: {name: auth}\n", ""))
    assert made.warnings("HTTPProxy") == [
        (
            "IgnoredField",
            "Annotation authplane.dev/authorization-mode has no effect: the virtual host has no "
            "authorization. Remove it.",
        )
    ]


def test_the_mode_of_an_included_proxy_has_no_effect_and_says_so() -> None:
    annotated = PART.replace("{name: part,", "{name: part, annotations: {authplane.dev/authorization-mode: Shadow},")
    made = world("{}", proxy=ROOT, part=annotated.replace("    authPolicy: {disabled: true}\n", ""))
    assert made.warnings("HTTPProxy") == [
        (
            "IgnoredField",
            "Annotation authplane.dev/authorization-mode has an effect only on a root HTTPProxy. Remove it.",
        )
    ]
    secure = made.secure()
    assert secure is not None
    assert {without_answer(each) for route in secure.host.routes for each in route.authorizations} == {FailClosed()}


def without_answer(authorization: RouteAuthorization) -> object:
    return authorization.service.on_failure if isinstance(authorization, Enforced) else None
