"""What Contour refuses in fields that have no effect here is refused here too."""

import pytest
from tests.support.resources.contour_documents import PROXY, world

COOKIES = "{name: a, secure: true}"
CORS = "{allowOrigin: ['*', 'https://a.example', 'https://.*[.]example'], allowMethods: [GET], maxAge: '0'}"
LIMIT = "{local: {requests: 1, unit: second}, global: {descriptors: []}}"


def host(field: str) -> str:
    return PROXY.replace("    fqdn: web.example\n", f"    fqdn: web.example\n    {field}\n")


def route(field: str) -> str:
    return PROXY.replace("  - services:", f"  - {field}\n    services:")


def service(field: str) -> str:
    return PROXY.replace("port: 80}", f"port: 80, {field}}}")


GOOD = {
    "CORS": host(f"corsPolicy: {CORS}"),
    "rates of a host": host(f"rateLimitPolicy: {LIMIT}"),
    "rates of a route": route(f"rateLimitPolicy: {LIMIT}"),
    "retries": route("retryPolicy: {count: -1, perTryTimeout: 1.5s, retryOn: [5xx], retriableStatusCodes: [503]}"),
    "cookies of a route": route(f"cookieRewritePolicies: [{COOKIES}, {{name: b, sameSite: Lax}}]"),
    "cookies of a service": service(f"cookieRewritePolicies: [{COOKIES}]"),
}


@pytest.mark.parametrize("proxy", GOOD.values(), ids=GOOD.keys())
def test_what_contour_takes_is_served_with_a_warning(proxy: str) -> None:
    made = world(proxy=proxy)
    assert made.problems("HTTPProxy") == []
    assert [reason for reason, _ in made.warnings("HTTPProxy")] == ["FieldNotSupported"]
    assert made.secure() is not None


ORIGIN = "allowed origin is invalid exact match and invalid regex match"
BAD = {
    "an origin that is no pattern": (
        host("corsPolicy: {allowOrigin: ['*.example'], allowMethods: [GET]}"),
        ("PolicyDidNotParse", f'Spec.VirtualHost.CORSPolicy: invalid allowed origin "*.example": {ORIGIN}'),
    ),
    "no origin": (
        host("corsPolicy: {allowOrigin: [], allowMethods: [GET]}"),
        ("FieldInvalid", "Expected at least 1 item, got 0."),
    ),
    "no method": (host("corsPolicy: {allowOrigin: ['*']}"), ("FieldRequired", "'allowMethods' is required")),
    "an age without a unit": (
        host("corsPolicy: {allowOrigin: ['*'], allowMethods: [GET], maxAge: '5'}"),
        ("FieldInvalid", "Expected a duration such as '10m', got '5'."),
    ),
    "a rate of nothing for a host": (
        host("rateLimitPolicy: {local: {requests: 0, unit: second}}"),
        ("FieldInvalid", "Expected a number from 1 to 4294967295, got 0."),
    ),
    "a rate of nothing": (
        route("rateLimitPolicy: {local: {requests: 0, unit: second}}"),
        ("FieldInvalid", "Expected a number from 1 to 4294967295, got 0."),
    ),
    "a rate by the day": (
        route("rateLimitPolicy: {local: {requests: 1, unit: day}}"),
        ("FieldInvalid", "Expected one of 'second', 'minute', 'hour', got 'day'."),
    ),
    "a try that ends soon": (
        route("retryPolicy: {perTryTimeout: soon}"),
        ("FieldInvalid", "Expected a duration such as '10s', got 'soon'."),
    ),
    "retries on Mondays": (
        route("retryPolicy: {retryOn: [monday]}"),
        ("FieldInvalid", "Expected one of '5xx'"),
    ),
    "a cookie twice": (
        route(f"cookieRewritePolicies: [{COOKIES}, {COOKIES}]"),
        ("CookieRewritePoliciesInvalid", 'duplicate cookie rewrite rule for cookie "a" on route cookie rewrite rules'),
    ),
    "a cookie of a service twice": (
        service(f"cookieRewritePolicies: [{COOKIES}, {COOKIES}]"),
        (
            "CookieRewritePoliciesInvalid",
            'duplicate cookie rewrite rule for cookie "a" on service cookie rewrite rules',
        ),
    ),
    "a cookie that stays as it is": (
        route("cookieRewritePolicies: [{name: a}]"),
        ("CookieRewritePoliciesInvalid", 'no attributes rewritten for cookie "a" on route cookie rewrite rules'),
    ),
    "a timeout without a unit": (
        route("timeoutPolicy: {response: '0'}"),
        (
            "TimeoutPolicyNotValid",
            "route.timeoutPolicy failed to parse: error parsing response timeout: unable to parse timeout string "
            '"0": time: invalid duration "0"',
        ),
    ),
}


@pytest.mark.parametrize(("proxy", "problem"), BAD.values(), ids=BAD.keys())
def test_what_contour_refuses_is_an_error(proxy: str, problem: tuple[str, str]) -> None:
    made = world(proxy=proxy)
    [(reason, message)] = made.problems("HTTPProxy")
    assert (reason, message[: len(problem[1])]) == problem
    assert made.secure() is None


@pytest.mark.parametrize("timeout", ["0s", "infinity", "1m30s"])
def test_a_timeout_with_a_unit_is_one(timeout: str) -> None:
    assert world(proxy=route(f"timeoutPolicy: {{response: {timeout}}}")).problems("HTTPProxy") == []
