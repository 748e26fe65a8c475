"""Authorization of virtual hosts and routes: what is configured is enforced, or the host is withdrawn."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.certificates import ca_secret
from tests.support.resources.contour_documents import AUTH, EXTENSION, PROXY, World, world
from tests.support.resources.graph_views import SecureHost, fallback

from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    Unprotected,
)
from authplane.core.timeouts import After, UseDefault
from authplane.core.timeouts import Disabled as NoTimeout

NOT_PERMITTED = (
    "Spec.VirtualHost.Authorization.ExtensionServiceRef can only be defined for root HTTPProxies that terminate TLS"
)

SETTINGS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: gateway}
spec:
  contour:
"""
INSECURE = SETTINGS + "    allowInsecureAuthorization: true\n"


def services(secure: SecureHost) -> set[AuthorizationService]:
    return {route.authorization.service for route in secure.host.routes if isinstance(route.authorization, Enforced)}


def with_authorization(block: str) -> World:
    """Replace the authorization block of the proxy."""
    old = "    authorization:\n      extensionRef: {name: auth}\n"
    assert old in PROXY
    return world(proxy=PROXY.replace(old, block))


class Bad(NamedTuple):
    block: str
    reason: str
    message: str


BAD = {
    "another resource version": Bad(
        "    authorization: {extensionRef: {name: auth, apiVersion: foo/bar}}\n",
        "AuthBadResourceVersion",
        'Spec.Virtualhost.Authorization.extensionRef specifies an unsupported resource version "foo/bar"',
    ),
    "another kind": Bad(
        "    authorization: {extensionRef: {name: auth, kind: Service}}\n",
        "AuthBadResourceKind",
        'Spec.Virtualhost.Authorization.extensionRef specifies an unsupported resource kind "Service"',
    ),
    "no service at all": Bad(
        "    authorization: {}\n",
        "AuthMissingExtensionRef",
        "Spec.VirtualHost.Authorization does not name an authorization service. Set extensionRef.",
    ),
    "only a policy": Bad(
        "    authorization: {authPolicy: {context: {a: b}}}\n",
        "AuthMissingExtensionRef",
        "Spec.VirtualHost.Authorization does not name an authorization service. Set extensionRef.",
    ),
    "a service that is not there": Bad(
        "    authorization: {extensionRef: {name: extension, namespace: missing}}\n",
        "ExtensionServiceNotFound",
        'Spec.Virtualhost.Authorization.ServiceRef extension service "missing/extension" not found',
    ),
    "a timeout without a unit": Bad(
        "    authorization: {extensionRef: {name: auth}, responseTimeout: invalid-timeout}\n",
        "AuthResponseTimeoutInvalid",
        "Spec.Virtualhost.Authorization.ResponseTimeout is invalid: unable to parse timeout string "
        '"invalid-timeout": time: invalid duration "invalid-timeout"',
    ),
}


@pytest.mark.requirement("AZ-1")
@pytest.mark.requirement("AZ-4")
@pytest.mark.requirement("AZ-17")
@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_authorization_that_cannot_be_enforced_withdraws_the_host(case: Bad) -> None:
    made = with_authorization(case.block)
    assert made.problems("HTTPProxy") == [(case.reason, case.message)]
    assert made.secure() is None
    assert made.plain() is None


@pytest.mark.requirement("AZ-2")
def test_the_kind_may_be_named() -> None:
    made = with_authorization("    authorization: {extensionRef: {name: auth, kind: ExtensionService}}\n")
    assert made.problems("HTTPProxy") == []


@pytest.mark.requirement("AZ-3")
def test_a_reference_without_namespace_stays_in_the_proxys_own() -> None:
    made = world(proxy=PROXY.replace("{name: web}", "{name: web, namespace: shop}"))
    assert (
        "ExtensionServiceNotFound",
        'Spec.Virtualhost.Authorization.ServiceRef extension service "shop/auth" not found',
    ) in made.problems("HTTPProxy")


@pytest.mark.requirement("AZ-3")
def test_an_extension_of_another_namespace_can_be_named() -> None:
    elsewhere = ("metadata: {name: auth", "metadata: {namespace: other, name: auth")
    proxy = PROXY.replace("extensionRef: {name: auth}", "extensionRef: {name: auth, namespace: other}")
    made = world(
        proxy=proxy,
        auth=AUTH.replace(*elsewhere),
        extension=EXTENSION.replace(*elsewhere),
        ca=ca_secret("ca", namespace="other"),
    )
    assert made.problems("HTTPProxy") == []
    secure = made.secure()
    assert secure is not None
    [service] = services(secure)
    assert service.cluster == "extension/other/auth"


@pytest.mark.requirement("AZ-5")
def test_authorization_without_tls_withdraws_the_host() -> None:
    made = world(proxy=PROXY.replace("    tls: {secretName: tls}\n", ""))
    assert made.problems("HTTPProxy") == [("AuthNotPermitted", NOT_PERMITTED)]
    assert made.plain() is None


@pytest.mark.requirement("AZ-7")
@pytest.mark.parametrize("settings", ["", INSECURE])
def test_authorization_with_passthrough_is_refused(settings: str) -> None:
    made = world(proxy=PROXY.replace("{secretName: tls}", "{passthrough: true}"), settings=settings)
    assert ("AuthNotPermitted", NOT_PERMITTED) in made.problems("HTTPProxy")
    assert (made.secure(), made.plain()) == (None, None)


@pytest.mark.requirement("AZ-5")
def test_authorization_without_tls_is_enforced_if_the_operator_allows_it() -> None:
    made = world(proxy=PROXY.replace("    tls: {secretName: tls}\n", ""), settings=INSECURE)
    assert made.problems("HTTPProxy") == []
    plain = made.plain()
    assert plain is not None
    assert [type(route.authorization) for route in plain.routes] == [Enforced]


@pytest.mark.requirement("AZ-20")
@pytest.mark.requirement("X18")
def test_authorization_with_the_fallback_certificate_is_refused() -> None:
    made = world(proxy=PROXY.replace("{secretName: tls}", "{secretName: tls, enableFallbackCertificate: true}"))
    assert (
        "TLSIncompatibleFeatures",
        "Spec.Virtualhost.TLS fallback & client authorization are incompatible",
    ) in made.problems("HTTPProxy")
    assert made.secure() is None


FALLBACK = PROXY.replace("{secretName: tls}", "{secretName: tls, enableFallbackCertificate: true}")
CERTIFICATE = "    httpproxy: {fallbackCertificate: {name: tls, namespace: default}}\n"
GLOBAL = "    globalExtAuth: {extensionRef: {name: auth}}\n"


@pytest.mark.requirement("AZ-20")
def test_authorization_with_the_fallback_certificate_is_enforced_if_the_operator_allows_it() -> None:
    made = world(proxy=FALLBACK, settings=INSECURE + CERTIFICATE)
    assert made.problems("HTTPProxy") == []
    chain = fallback(made.graph)
    assert chain is not None
    assert [type(route.authorization) for host in chain.table.hosts for route in host.routes] == [Enforced]


@pytest.mark.requirement("AZ-20")
@pytest.mark.requirement("GL-7")
def test_global_authorization_is_enforced_with_the_fallback_certificate_too() -> None:
    bare = FALLBACK.replace("    authorization:\n      extensionRef: {name: auth}\n", "")
    made = world(proxy=bare, settings=SETTINGS + CERTIFICATE + GLOBAL)
    assert made.problems("HTTPProxy") == []
    chain = fallback(made.graph)
    assert chain is not None
    assert [type(route.authorization) for host in chain.table.hosts for route in host.routes] == [Enforced]
    adjusted = bare.replace("  routes:\n", "    authorization: {authPolicy: {disabled: true}}\n  routes:\n")
    refused = world(proxy=adjusted, settings=SETTINGS + CERTIFICATE + GLOBAL)
    assert [reason for reason, _ in refused.problems("HTTPProxy")] == ["TLSIncompatibleFeatures"]


@pytest.mark.requirement("AZ-8")
@pytest.mark.requirement("AZ-12")
def test_included_routes_ask_the_roots_service_with_the_roots_policy() -> None:
    root = PROXY.replace("{name: auth}\n", "{name: auth}\n      authPolicy: {context: {of: root}}\n")
    part = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: part}
spec:
  routes:
  - services: [{name: echo, port: 80}]
  - conditions: [{prefix: /own}]
    authPolicy: {context: {own: route}}
    services: [{name: echo, port: 80}]
"""
    made = world(
        proxy=root.replace("  routes:\n", "  includes: [{name: part}]\n  routes:\n", 1).replace(
            "  - services:", "  - conditions: [{prefix: /root}]\n    services:"
        ),
        part=part,
    )
    assert made.problems("HTTPProxy") == []
    secure = made.secure()
    assert secure is not None
    assert len(services(secure)) == 1
    assert {
        route.match.path.path: route.authorization.context
        for route in secure.host.routes
        if isinstance(route.authorization, Enforced)
    } == {"/": (("of", "root"),), "/root": (("of", "root"),), "/own": (("of", "root"), ("own", "route"))}


@pytest.mark.requirement("EN-8")
@pytest.mark.parametrize(
    "action", ["requestRedirectPolicy: {hostname: b.example}", "directResponsePolicy: {statusCode: 200}"]
)
def test_routes_that_answer_by_themselves_are_checked_or_not_like_others(action: str) -> None:
    proxy = (
        PROXY.split("  routes:\n")[0]
        + f"""  routes:
  - {action}
    authPolicy: {{context: {{a: b}}}}
  - conditions: [{{prefix: /open}}]
    {action}
    authPolicy: {{disabled: true}}
"""
    )
    made = world(proxy=proxy)
    assert made.problems("HTTPProxy") == []
    secure = made.secure()
    assert secure is not None
    [opened, checked] = secure.host.routes
    assert opened.authorization == Disabled()
    assert isinstance(checked.authorization, Enforced)
    assert checked.authorization.context == (("a", "b"),)


@pytest.mark.requirement("AZ-6")
@pytest.mark.requirement("ES-34")
def test_an_extension_service_that_is_not_valid_is_not_called_missing() -> None:
    made = world(extension=EXTENSION.replace("port: 9443", "port: 1"))
    assert made.problems("HTTPProxy") == [
        (
            "ExtensionServiceNotValid",
            'Spec.Virtualhost.Authorization.ServiceRef extension service "default/auth" is not valid. See its status.',
        )
    ]
    assert made.secure() is None
    assert made.plain() is None


def test_an_extension_service_that_cannot_be_read_is_not_called_missing() -> None:
    made = world(extension=EXTENSION.replace("services:", "servics:"))
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["ExtensionServiceNotValid"]
    assert made.secure() is None


@pytest.mark.requirement("AZ-14")
def test_a_routes_policy_without_any_authorization_is_a_warning() -> None:
    proxy = PROXY.replace("    authorization:\n      extensionRef: {name: auth}\n", "")
    made = world(proxy=proxy.replace("  - services:", "  - authPolicy: {disabled: true}\n    services:"))
    assert made.warnings("HTTPProxy") == [
        ("IgnoredField", "authPolicy has no effect: the virtual host has no authorization. Remove it.")
    ]
    secure = made.secure()
    assert secure is not None
    assert secure.host.routes[0].authorization == Unprotected()


@pytest.mark.requirement("AZ-16")
def test_fail_open_is_what_the_author_asked_for_and_a_warning() -> None:
    made = with_authorization("    authorization: {extensionRef: {name: auth}, failOpen: true}\n")
    secure = made.secure()
    assert secure is not None
    [service] = services(secure)
    assert service.on_failure == FailOpen()
    assert [reason for reason, _ in made.warnings("HTTPProxy")] == ["AuthFailOpen"]


def test_no_answer_refuses_the_request_unless_the_author_says_otherwise() -> None:
    secure = world().secure()
    assert secure is not None
    [service] = services(secure)
    assert service.on_failure == FailClosed()


TIMEOUTS = {
    "neither": ("", "", UseDefault()),
    "the extension's": ("", "3s", After(timedelta(seconds=3))),
    "the host's": ("500ms", "", After(timedelta(milliseconds=500))),
    "the host's wins": ("500ms", "3s", After(timedelta(milliseconds=500))),
    "for ever": ("infinity", "3s", NoTimeout()),
    "zero is no timeout of one's own": ("0s", "3s", After(timedelta(seconds=3))),
}


@pytest.mark.requirement("AZ-17")
@pytest.mark.requirement("ES-26")
@pytest.mark.parametrize(("host", "extension", "want"), TIMEOUTS.values(), ids=TIMEOUTS.keys())
def test_the_timeout_is_the_hosts_or_the_extensions(host: str, extension: str, want: object) -> None:
    proxy = PROXY.replace("{name: auth}\n", f"{{name: auth}}\n      responseTimeout: '{host}'\n") if host else PROXY
    made = world(
        proxy=proxy,
        extension=EXTENSION + f"  timeoutPolicy: {{response: {extension}}}\n" if extension else EXTENSION,
    )
    secure = made.secure()
    assert secure is not None
    [service] = services(secure)
    assert service.timeout == want


@pytest.mark.requirement("AZ-21")
@pytest.mark.requirement("X19")
def test_a_checked_route_cannot_be_served_over_http() -> None:
    made = world(proxy=PROXY.replace("  - services:", "  - permitInsecure: true\n    services:"))
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["AuthPermitInsecureConflict"]
    assert made.secure() is None
    assert made.plain() is None


def test_an_unchecked_route_may_be_served_over_http() -> None:
    route = "  - permitInsecure: true\n    authPolicy: {disabled: true}\n    services:"
    made = world(proxy=PROXY.replace("  - services:", route))
    assert made.problems("HTTPProxy") == []
    plain = made.plain()
    assert plain is not None
    assert plain.routes[0].authorization == Disabled()
