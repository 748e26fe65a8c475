"""How a service is asked: over gRPC or HTTP, with which headers and how much of the body."""

from typing import Final, NamedTuple

import pytest
from tests.support.resources.contour_documents import EXTENSION, PROXY, World, world

from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    Enforced,
    HeaderNames,
    NameTest,
    OverGrpc,
    OverHttp,
)

REF: Final = "      extensionRef: {name: auth}\n"
HTTP1: Final = EXTENSION.replace("  validation: {caSecret: ca, subjectName: auth.example}\n", "  protocol: http/1.1\n")


def made(block: str, *, extension: str = EXTENSION, route: str = "") -> World:
    proxy = PROXY.replace(REF, REF + block)
    if route:
        proxy = proxy.replace("  - services:", f"  - authPolicy: {route}\n    services:")
    return world(proxy=proxy, extension=extension)


def service(built: World) -> AuthorizationService:
    assert built.problems("HTTPProxy") == []
    secure = built.secure()
    assert secure is not None
    authorization = secure.host.routes[0].authorization
    assert isinstance(authorization, Enforced)
    return authorization.service


@pytest.mark.requirement("EN-4")
def test_grpc_is_the_default_and_names_the_services_host() -> None:
    assert service(made("")).protocol == OverGrpc(authority="auth.example")
    assert service(made("      serviceType: grpc\n")).protocol == OverGrpc(authority="auth.example")
    plain = EXTENSION.replace("  validation: {caSecret: ca, subjectName: auth.example}\n", "  protocol: h2c\n")
    assert service(made("", extension=plain)).protocol == OverGrpc(authority="extension.default.auth")


@pytest.mark.requirement("AZ-22")
@pytest.mark.parametrize("extension", [EXTENSION, HTTP1], ids=["h2", "http/1.1"])
def test_an_http_service_gets_the_listed_headers(extension: str) -> None:
    built = made(
        """      serviceType: http
      httpSettings:
        pathPrefix: /verify
        allowedAuthorizationHeaders: [{exact: X-Token}, {prefix: x-user-, ignoreCase: true}]
        allowedUpstreamHeaders: [{suffix: -id}, {contains: role}]
""",
        extension=extension,
    )
    assert service(built).protocol == OverHttp(
        path_prefix="/verify",
        request_headers=(
            HeaderNames(test=NameTest.EXACT, text="x-token"),
            HeaderNames(test=NameTest.PREFIX, text="x-user-", ignore_case=True),
        ),
        upstream_headers=(
            HeaderNames(test=NameTest.SUFFIX, text="-id"),
            HeaderNames(test=NameTest.CONTAINS, text="role"),
        ),
    )


def test_an_http_service_needs_no_settings() -> None:
    assert service(made("      serviceType: http\n", extension=HTTP1)).protocol == OverHttp()


class Bad(NamedTuple):
    block: str
    reason: str
    message: str
    extension: str = EXTENSION


HTTP: Final = "      serviceType: http\n      httpSettings: "
RULES: Final = "Spec.Virtualhost.Authorization.HTTPServerSettings"
BAD: Final = {
    "context over HTTP": Bad(
        "      serviceType: http\n      authPolicy: {context: {a: b}}\n",
        "AuthContextForHTTP",
        "Spec.Virtualhost.Authorization.AuthPolicy.Context are only applied to grpc service type",
    ),
    "a header rule without a test": Bad(
        HTTP + "{allowedAuthorizationHeaders: [{exact: a}, {ignoreCase: true}]}\n",
        "AuthBadAllowedHeader",
        f"{RULES}.AllowedAuthorizationHeaders is invalid: one of prefix, suffix, exact or contains is required for "
        "each allowedHeader",
    ),
    "a header rule with two tests": Bad(
        HTTP + "{allowedUpstreamHeaders: [{exact: a, prefix: b}]}\n",
        "AuthBadAllowedHeader",
        f"{RULES}.AllowedUpstreamHeaders is invalid: only one of prefix, suffix, exact, and contains should be set in "
        "the allowedHeader",
    ),
    "settings of HTTP for gRPC": Bad(
        "      httpSettings: {pathPrefix: /verify}\n",
        "AuthBadHTTPSettings",
        "httpSettings can only be set when serviceType is 'http'",
    ),
    "a prefix that is no path": Bad(
        HTTP + "{pathPrefix: verify}\n",
        "AuthBadHTTPSettings",
        f"{RULES}.PathPrefix is not a path. Use one such as '/verify'.",
    ),
    "a prefix with a query": Bad(
        HTTP + "{pathPrefix: '/verify?x='}\n",
        "AuthBadHTTPSettings",
        f"{RULES}.PathPrefix is not a path. Use one such as '/verify'.",
    ),
    "gRPC to a service that speaks HTTP/1.1": Bad(
        "",
        "AuthProtocolMismatch",
        'Spec.Virtualhost.Authorization.ServiceRef extension service "default/auth" uses '
        '"http/1.1", but Envoy sends gRPC checks only over h2 or h2c. Change its protocol, or set serviceType to http.',
        HTTP1,
    ),
}


@pytest.mark.requirement("AZ-22")
@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_what_a_service_could_not_be_asked_withdraws_the_host(case: Bad) -> None:
    built = made(case.block, extension=case.extension)
    assert built.problems("HTTPProxy") == [(case.reason, case.message)]
    assert (built.secure(), built.plain()) == (None, None)


@pytest.mark.requirement("AZ-22")
def test_context_of_a_route_does_not_reach_a_service_asked_over_http() -> None:
    built = made("      serviceType: http\n", route="{context: {a: b}}")
    assert built.problems("HTTPProxy") == [
        ("AuthContextForHTTP", "Spec.Routes.AuthPolicy.Context are only applied to grpc service type")
    ]
    assert built.secure() is None


def test_all_mistakes_of_a_block_are_told_at_once() -> None:
    built = made(
        "      serviceType: http\n      responseTimeout: soon\n      authPolicy: {context: {a: b}}\n"
        "      httpSettings: {pathPrefix: x, allowedUpstreamHeaders: [{}, {}]}\n"
    )
    assert sorted(reason for reason, _ in built.problems("HTTPProxy")) == [
        "AuthBadAllowedHeader",
        "AuthBadAllowedHeader",
        "AuthBadHTTPSettings",
        "AuthContextForHTTP",
        "AuthResponseTimeoutInvalid",
    ]


@pytest.mark.requirement("AZ-18")
def test_the_body_goes_along_only_if_the_author_asks_for_it() -> None:
    assert service(made("")).body is None
    assert service(made("      withRequestBody: {}\n")).body == CheckedBody(most_bytes=1024)
    assert service(
        made("      withRequestBody: {maxRequestBytes: 1, allowPartialMessage: true, packAsBytes: true}\n")
    ).body == CheckedBody(most_bytes=1, partial=True, as_bytes=True)


@pytest.mark.requirement("AZ-18")
@pytest.mark.parametrize("size", [0, -1, 16 * 1024 * 1024 + 1])
def test_a_body_of_no_size_or_too_large_is_refused(size: int) -> None:
    assert made(f"      withRequestBody: {{maxRequestBytes: {size}}}\n").secure() is None
