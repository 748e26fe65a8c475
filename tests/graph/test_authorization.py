"""Authorization of virtual hosts and routes: what is configured is enforced, or the host is withdrawn."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.certificates import ca_secret
from tests.support.world import AUTH, EXTENSION, PROXY, World, world

from authplane.base.timeouts import After, UseDefault
from authplane.base.timeouts import Disabled as NoTimeout
from authplane.graph.guards import (
    AuthorizationService,
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    RouteAuthorization,
    Unprotected,
)
from authplane.graph.model import SecureHost

NOT_PERMITTED = (
    "Spec.VirtualHost.Authorization.ExtensionServiceRef can only be defined for root HTTPProxies that terminate TLS"
)


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
        "Spec.VirtualHost.Authorization names no authorization service, so nothing would be enforced",
    ),
    "only a policy": Bad(
        "    authorization: {authPolicy: {context: {a: b}}}\n",
        "AuthMissingExtensionRef",
        "Spec.VirtualHost.Authorization names no authorization service, so nothing would be enforced",
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


def test_authorization_with_passthrough_is_refused() -> None:
    made = world(proxy=PROXY.replace("{secretName: tls}", "{passthrough: true}"))
    assert ("AuthNotPermitted", NOT_PERMITTED) in made.problems("HTTPProxy")
    assert made.secure() is None


@pytest.mark.requirement("AZ-20")
def test_authorization_with_the_fallback_certificate_is_refused() -> None:
    made = world(proxy=PROXY.replace("{secretName: tls}", "{secretName: tls, enableFallbackCertificate: true}"))
    assert (
        "TLSIncompatibleFeatures",
        "Spec.Virtualhost.TLS fallback & client authorization are incompatible",
    ) in made.problems("HTTPProxy")
    assert made.secure() is None


@pytest.mark.requirement("AZ-6")
@pytest.mark.requirement("ES-34")
def test_an_extension_service_that_is_not_valid_is_not_called_missing() -> None:
    made = world(extension=EXTENSION.replace("port: 9443", "port: 1"))
    assert made.problems("HTTPProxy") == [
        (
            "ExtensionServiceNotValid",
            'Spec.Virtualhost.Authorization.ServiceRef extension service "default/auth" is not valid; '
            "its own status says why",
        )
    ]
    assert made.secure() is None
    assert made.plain() is None


def test_an_extension_service_that_cannot_be_read_is_not_called_missing() -> None:
    made = world(extension=EXTENSION.replace("services:", "servics:"))
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["ExtensionServiceNotValid"]
    assert made.secure() is None


class Cell(NamedTuple):
    host: str
    route: str
    want: type[RouteAuthorization]
    context: tuple[tuple[str, str], ...] = ()


MATRIX = {
    "nothing said": Cell("", "", Enforced),
    "host disabled": Cell("{disabled: true}", "", Disabled),
    "host disabled, route enabled": Cell("{disabled: true}", "{disabled: false}", Enforced),
    "host disabled, route adds context": Cell("{disabled: true}", "{context: {a: '1'}}", Enforced, (("a", "1"),)),
    "host enabled, route disabled": Cell("{disabled: false}", "{disabled: true}", Disabled),
    "host context": Cell("{context: {a: '1', b: '2'}}", "", Enforced, (("a", "1"), ("b", "2"))),
    "route context wins": Cell(
        "{context: {a: '1', b: '2'}}", "{context: {b: '3', c: '4'}}", Enforced, (("a", "1"), ("b", "3"), ("c", "4"))
    ),
    "host context, route disabled": Cell("{context: {a: '1'}}", "{disabled: true, context: {a: '2'}}", Disabled),
    "host disabled with context, route enabled": Cell(
        "{disabled: true, context: {a: '1'}}", "{disabled: false}", Enforced, (("a", "1"),)
    ),
}


@pytest.mark.requirement("AZ-10")
@pytest.mark.parametrize("cell", MATRIX.values(), ids=MATRIX.keys())
def test_a_routes_policy_is_laid_over_the_hosts(cell: Cell) -> None:
    policy = f"      authPolicy: {cell.host}\n" if cell.host else ""
    proxy = PROXY.replace("{name: auth}\n", "{name: auth}\n" + policy)
    if cell.route:
        proxy = proxy.replace("  - services:", f"  - authPolicy: {cell.route}\n    services:")
    secure = world(proxy=proxy).secure()
    assert secure is not None
    authorization = secure.host.routes[0].authorization
    assert isinstance(authorization, cell.want)
    if isinstance(authorization, Enforced):
        assert authorization.context == cell.context


@pytest.mark.requirement("AZ-14")
def test_a_routes_policy_without_any_authorization_is_a_warning() -> None:
    proxy = PROXY.replace("    authorization:\n      extensionRef: {name: auth}\n", "")
    made = world(proxy=proxy.replace("  - services:", "  - authPolicy: {disabled: true}\n    services:"))
    assert made.warnings("HTTPProxy") == [
        ("IgnoredField", "the virtual host has no authorization that this could change")
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
