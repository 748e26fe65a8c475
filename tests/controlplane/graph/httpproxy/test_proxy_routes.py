"""What routes match and do."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.support.resources.contour_documents import ECHO, PROXY, World, world

from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.match_model import Exact, Prefix, Regex
from authplane.controlplane.graph.model.match_words import match_words
from authplane.controlplane.graph.model.route_authorization import Disabled as AuthorizationDisabled
from authplane.controlplane.graph.model.route_authorization import Enforced, Unprotected
from authplane.controlplane.graph.model.route_model import (
    Action,
    Forward,
    Redirect,
    RedirectToHttps,
    Respond,
    Route,
    Target,
)
from authplane.controlplane.render.dump import dump
from authplane.core.header_edits import HeaderEdits
from authplane.core.timeouts import After, Disabled, UseDefault

ROUTES = "  routes:\n  - services:\n    - {name: echo, port: 80}\n"
TO_ECHO = "services: [{name: echo, port: 80}]"


def routed(*routes: str, **changed: str) -> World:
    """Return the world with these routes on its checked host."""
    return world(**({"proxy": PROXY.replace(ROUTES, f"  routes: [{', '.join(routes)}]\n")} | changed))


def host_of(made: World) -> Host:
    secure = made.secure()
    assert secure is not None, made.generation.findings
    return secure.host


def route_of(made: World) -> Route:
    [route] = host_of(made).routes
    return route


def forward_of(made: World) -> Forward:
    action = route_of(made).action
    assert isinstance(action, Forward)
    return action


# --- Order


def test_exact_paths_come_before_patterns_before_prefixes_and_the_longer_and_narrower_first() -> None:
    conditions = [
        "{prefix: /}",
        "{prefix: /a/b}",
        "{prefix: /a}, {header: {name: x, present: true}}",
        "{prefix: /a}",
        "{prefix: /a}, {queryParameter: {name: q, present: true}}",
        "{prefix: /a}, {header: {name: x, present: true}}, {header: {name: y, present: true}}",
        "{exact: /a}",
        "{regex: /a.*}",
        "{exact: /a/bc}",
        "{regex: /}",
        "{prefix: /a}, {header: {name: a, present: true}}",
    ]
    made = routed(*(f"{{conditions: [{each}], {TO_ECHO}}}" for each in conditions))
    assert made.problems("HTTPProxy") == []
    want = [
        "=/a/bc",
        "=/a",
        '~"/a.*"',
        '~"/"',
        "/a/b",
        "/a[x present, y present]",
        "/a[a present]",
        "/a[x present]",
        "/a[?q present]",
        "/a",
        "/",
    ]
    assert [match_words(route.match) for route in host_of(made).routes] == want
    backwards = routed(*(f"{{conditions: [{each}], {TO_ECHO}}}" for each in reversed(conditions)))
    assert host_of(backwards) == host_of(made)
    names = [
        route["name"]
        for route in dump(made.generation.rendered, show_secrets=False)["routes"][0]["virtualHosts"][0]["routes"]
    ]
    assert names == [f"default/web#{words}" for words in want]


def test_a_pattern_is_kept_as_it_is_written() -> None:
    made = routed(f"{{conditions: [{{regex: '/v[0-9]+/.*'}}], {TO_ECHO}}}")
    assert route_of(made).match.path == Regex("/v[0-9]+/.*")


def test_two_routes_with_the_same_conditions_in_another_order_are_the_same() -> None:
    one = "{header: {name: X, present: true}}, {header: {name: y, present: true}}"
    two = "{header: {name: Y, present: true}}, {header: {name: x, present: true}}"
    made = routed(f"{{conditions: [{one}], {TO_ECHO}}}", f"{{conditions: [{two}], {TO_ECHO}}}")
    message = "This route gets no requests: routes[1] has the same conditions (/[x present, y present]) and comes "
    message += "later, and the last route wins. "
    assert made.warnings("HTTPProxy") == [("DuplicateMatchConditions", f"{message}Remove one of the routes.")]


# --- Actions


class Does(NamedTuple):
    route: str
    want: Action


DOES = {
    "a redirect": Does(
        "requestRedirectPolicy: {scheme: https, hostname: new.example, port: 8443, statusCode: 301, path: /new}",
        Redirect(status=301, scheme="https", host="new.example", port=8443, path="/new"),
    ),
    "a redirect is 302": Does("requestRedirectPolicy: {prefix: /new}", Redirect(status=302, prefix="/new")),
    "a direct response": Does("directResponsePolicy: {statusCode: 404}", Respond(status=404)),
    "a direct response with a body": Does(
        "directResponsePolicy: {statusCode: 503, body: later}", Respond(status=503, body="later")
    ),
}


@pytest.mark.requirement("EN-8")
@pytest.mark.parametrize("case", DOES.values(), ids=DOES.keys())
def test_what_a_route_answers_by_itself_is_checked_as_well(case: Does) -> None:
    made = routed(
        f"{{{case.route}}}",
        f"{{conditions: [{{prefix: /open}}], {case.route}, authPolicy: {{disabled: true}}}}",
        f"{{conditions: [{{prefix: /context}}], {case.route}, authPolicy: {{context: {{a: b}}}}}}",
    )
    assert made.problems("HTTPProxy") == []
    [context, opened, checked] = host_of(made).routes
    assert [route.action for route in (context, opened, checked)] == [case.want] * 3
    assert isinstance(checked.authorization, Enforced)
    assert opened.authorization == AuthorizationDisabled()
    assert isinstance(context.authorization, Enforced)
    assert context.authorization.context == (("a", "b"),)


COUNT = "must set exactly one of route.services or route.requestRedirectPolicy or route.directResponsePolicy. Set one."
REDIRECT = "route.requestRedirectPolicy is invalid: "
WRONG = {
    "nothing to do": ("{conditions: [{prefix: /}]}", "RouteActionCountNotValid", COUNT),
    "two things to do": (
        f"{{{TO_ECHO}, directResponsePolicy: {{statusCode: 200}}}}",
        "RouteActionCountNotValid",
        COUNT,
    ),
    "a path and a prefix": (
        "{requestRedirectPolicy: {path: /a, prefix: /b}}",
        "RequestRedirectPolicy",
        REDIRECT + "cannot specify both redirect path and redirect prefix. Remove one of them.",
    ),
    "a path without slash": (
        "{requestRedirectPolicy: {path: a}}",
        "RequestRedirectPolicy",
        REDIRECT + "the path 'a' does not start with a slash. Add one in front.",
    ),
    "a path that is a host": (
        "{requestRedirectPolicy: {path: //evil.example}}",
        "RequestRedirectPolicy",
        REDIRECT + "the path '//evil.example' starts with two slashes, so a client would read the text after them "
        "as a host. Use one slash.",
    ),
    "a host that is none": (
        "{requestRedirectPolicy: {hostname: 'a b'}}",
        "RequestRedirectPolicy",
        REDIRECT + "'a b' is not a host name. Use one such as 'www.example.com'.",
    ),
    "a body that Envoy does not take": (
        f"{{directResponsePolicy: {{statusCode: 200, body: '{'x' * 4097}'}}}}",
        "DirectResponsePolicyNotValid",
        "The body is longer than 4096 bytes. Shorten it.",
    ),
    "a timeout that is none": (
        f"{{{TO_ECHO}, timeoutPolicy: {{idle: soon}}}}",
        "TimeoutPolicyNotValid",
        "route.timeoutPolicy failed to parse: error parsing idle timeout: unable to parse timeout "
        'string "soon": time: invalid duration "soon". Use one such as "10s".',
    ),
    "a replacement without a prefix": (
        f"{{conditions: [{{exact: /a}}], {TO_ECHO}, pathRewritePolicy: {{replacePrefix: [{{replacement: /b}}]}}}}",
        "MustHavePrefix",
        "cannot specify prefix replacements without a prefix condition. Add a prefix condition.",
    ),
    "two replacements of one prefix": (
        f"{{{TO_ECHO}, pathRewritePolicy: {{replacePrefix: "
        "[{prefix: /a, replacement: /b}, {prefix: /a, replacement: /c}]}}",
        "DuplicateReplacement",
        "duplicate replacement prefix '/a'. Remove one of them.",
    ),
    "two replacements of any prefix": (
        f"{{{TO_ECHO}, pathRewritePolicy: {{replacePrefix: [{{replacement: /b}}, {{replacement: /c}}]}}}}",
        "AmbiguousReplacement",
        "ambiguous prefix replacement. Set the prefix of each replacement.",
    ),
    "a replacement without slash": (
        f"{{{TO_ECHO}, pathRewritePolicy: {{replacePrefix: [{{replacement: b}}]}}}}",
        "ReplacementNotValid",
        "The replacement 'b' does not start with a slash. Add one in front.",
    ),
}
TYPES = {"MustHavePrefix", "DuplicateReplacement", "AmbiguousReplacement", "ReplacementNotValid"}


@pytest.mark.parametrize(("route", "reason", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_route_that_cannot_be_as_it_is_written_withdraws_the_host(route: str, reason: str, message: str) -> None:
    made = routed(route)
    assert made.problems("HTTPProxy") == [(reason, message)]
    assert (made.secure(), made.plain()) == (None, None)
    [error] = made.status("HTTPProxy", "web").conditions[0].errors
    kind = "PrefixReplaceError" if reason in TYPES else "RouteError"
    assert (error.type, error.reason, error.message) == (kind, reason, message)


def test_what_counts_only_for_services_is_named() -> None:
    more = "enableWebsockets: true, timeoutPolicy: {response: 1s}, loadBalancerPolicy: {strategy: Random}"
    made = routed(f"{{directResponsePolicy: {{statusCode: 200}}, {more}}}")
    assert made.problems("HTTPProxy") == []
    assert sorted(made.warnings("HTTPProxy")) == [
        ("IgnoredField", f'ignoring field "{field}", which has no effect without services. Remove it.')
        for field in ("enableWebsockets", "loadBalancerPolicy", "timeoutPolicy")
    ]


def test_a_host_without_routes_is_refused() -> None:
    made = routed()
    assert made.problems("HTTPProxy") == [
        ("NothingDefined", "HTTPProxy.Spec must have at least one Route, Include, or a TCPProxy. Add a route.")
    ]
    assert made.secure() is None


# --- Sending on


def test_timeouts_and_websockets_are_passed_on() -> None:
    made = routed(f"{{{TO_ECHO}, enableWebsockets: true, timeoutPolicy: {{response: infinity, idle: 1m30s}}}}")
    assert forward_of(made) == Forward(
        targets=(Target(cluster="service/default/echo/80", weight=1),),
        response_timeout=Disabled(),
        idle_timeout=After(timedelta(seconds=90)),
        websockets=True,
    )
    assert forward_of(routed(f"{{{TO_ECHO}}}")).response_timeout == UseDefault()


class Rewrite(NamedTuple):
    prefix: str
    replacements: str
    want: list[tuple[str, str | None]]


REWRITES = {
    "a prefix with and without slash": Rewrite("/foo", "[{replacement: /bar}]", [("/foo/", "/bar/"), ("/foo", "/bar")]),
    "by a slash": Rewrite("/foo", "[{replacement: /}]", [("/foo/", "/"), ("/foo", "/")]),
    "a prefix with a slash covers what is before it": Rewrite(
        "/foo/", "[{replacement: /bar}]", [("/foo/", "/bar/"), ("/foo", "/bar")]
    ),
    "everything": Rewrite("/", "[{replacement: /bar}]", [("/", "/bar")]),
    "by prefix before any": Rewrite(
        "/foo/", "[{replacement: /any}, {prefix: /foo/, replacement: /own}]", [("/foo/", "/own/"), ("/foo", "/own")]
    ),
    "of another prefix only": Rewrite("/foo", "[{prefix: /other, replacement: /own}]", [("/foo", None)]),
}


def replacements(made: World) -> list[tuple[str, str | None]]:
    """Return what takes the place of the prefix of each route."""
    forwards = [
        (route.match.path.path, route.action.rewrite)
        for route in host_of(made).routes
        if isinstance(route.action, Forward)
    ]
    return [(path, rewrite.path if rewrite is not None else None) for path, rewrite in forwards]


@pytest.mark.parametrize("case", REWRITES.values(), ids=REWRITES.keys())
def test_a_prefix_is_replaced_with_its_slash(case: Rewrite) -> None:
    policy = f"pathRewritePolicy: {{replacePrefix: {case.replacements}}}"
    made = routed(f"{{conditions: [{{prefix: {case.prefix}}}], {TO_ECHO}, {policy}}}")
    assert made.problems("HTTPProxy") == []
    assert replacements(made) == case.want


def test_a_sibling_that_the_author_wrote_is_left_alone() -> None:
    policy = "pathRewritePolicy: {replacePrefix: [{replacement: /bar}]}"
    made = routed(
        f"{{conditions: [{{prefix: /foo}}], {TO_ECHO}, {policy}}}", f"{{conditions: [{{prefix: /foo/}}], {TO_ECHO}}}"
    )
    assert replacements(made) == [
        ("/foo/", None),
        ("/foo", "/bar"),
    ]


# --- Headers


def test_headers_are_set_and_removed_on_routes_and_services() -> None:
    policy = "{set: [{name: X-B, value: 100%}, {name: x-a, value: a}], remove: [X-C, X-A]}"
    made = routed(
        f"{{services: [{{name: echo, port: 80, requestHeadersPolicy: {policy}, responseHeadersPolicy: {policy}}}], "
        f"requestHeadersPolicy: {policy}, responseHeadersPolicy: {policy}}}"
    )
    assert made.problems("HTTPProxy") == made.warnings("HTTPProxy") == []
    edits = HeaderEdits(set=(("x-a", "a"), ("x-b", "100%")), remove=("x-c",))
    route = route_of(made)
    assert (route.request_headers, route.response_headers) == (edits, edits)
    assert forward_of(made).targets == (
        Target(cluster="service/default/echo/80", weight=1, request_headers=edits, response_headers=edits),
    )


def test_the_host_is_rewritten_by_a_header() -> None:
    made = routed(f"{{{TO_ECHO}, requestHeadersPolicy: {{set: [{{name: hOST, value: 'origin.example:81'}}]}}}}")
    assert forward_of(made).host == "origin.example:81"
    assert route_of(made).request_headers == HeaderEdits()


REQUEST, RESPONSE = "on request headers", "on response headers. Remove it."
BAD_HEADERS = {
    "twice": (
        "{set: [{name: x-a, value: a}, {name: X-A, value: b}]}",
        'duplicate header addition: "X-A" @. Remove one of them.',
    ),
    "removed twice": ("{remove: [x-a, X-A]}", 'duplicate header removal: "X-A" @. Remove one of them.'),
    "the host removed": ("{remove: [host]}", 'rewriting "Host" header is not supported @. Remove it.'),
    "the host twice": (
        "{set: [{name: host, value: a}, {name: Host, value: b}]}",
        'duplicate header addition: "Host" @. Remove one of them.',
    ),
    "a host with more": (
        "{set: [{name: host, value: 'a/b'}]}",
        'invalid value of header "Host" @: it is not a host name. Use one such as "shop.example:8080".',
    ),
    "a pseudo header": ("{set: [{name: ':path', value: /}]}", 'invalid set header ":path" @. Correct or remove it.'),
    "the length": (
        "{set: [{name: Content-Length, value: '0'}]}",
        'invalid set header "Content-Length" @. Correct or remove it.',
    ),
    "the encoding": (
        "{remove: [transfer-encoding]}",
        'invalid remove header "Transfer-Encoding" @. Correct or remove it.',
    ),
    "a name that is none": ("{set: [{name: 'x a', value: a}]}", 'invalid set header "X a" @. Correct or remove it.'),
    "a value with a line break": (
        '{set: [{name: x, value: "a\\r\\nb"}]}',
        'invalid value of header "X" @. Use printable ASCII.',
    ),
}


@pytest.mark.parametrize(("policy", "message"), BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_a_header_policy_that_cannot_be_followed_withdraws_the_host(policy: str, message: str) -> None:
    made = routed(f"{{{TO_ECHO}, requestHeadersPolicy: {policy}}}")
    assert made.problems("HTTPProxy") == [("RequestHeadersPolicyInvalid", message.replace(" @", f" {REQUEST}"))]
    assert made.secure() is None


def test_the_host_is_rewritten_nowhere_else() -> None:
    policy = "{set: [{name: host, value: a}]}"
    message = 'rewriting "Host" header is not supported '
    on_response = routed(f"{{{TO_ECHO}, responseHeadersPolicy: {policy}}}")
    assert on_response.problems("HTTPProxy") == [("ResponseHeaderPolicyInvalid", message + RESPONSE)]
    answer = routed(f"{{services: [{{name: echo, port: 80, responseHeadersPolicy: {policy}}}]}}")
    assert answer.problems("HTTPProxy") == [("ResponseHeadersPolicyInvalid", message + RESPONSE)]
    types = [made.status("HTTPProxy", "web").conditions[0].errors[0].type for made in (on_response, answer)]
    assert types == ["RouteError", "ServiceError"]


def test_the_host_is_rewritten_for_one_service_alone() -> None:
    policy = "{set: [{name: host, value: one.example}]}"
    services = f"[{{name: echo, port: 80, requestHeadersPolicy: {policy}}}, {{name: echo, port: 80}}]"
    made = routed(f"{{services: {services}, requestHeadersPolicy: {policy.replace('one.', 'all.')}}}")
    assert made.problems("HTTPProxy") == []
    assert forward_of(made).host == "all.example"
    assert [target.host for target in forward_of(made).targets] == ["one.example", None]
    wrong = routed(f"{{services: [{{name: echo, port: 80, requestHeadersPolicy: {policy.replace('one.', '/')}}}]}}")
    message = f'invalid value of header "Host" {REQUEST}: it is not a host name. Use one such as "shop.example:8080".'
    assert wrong.problems("HTTPProxy") == [("RequestHeadersPolicyInvalid", message)]


def test_a_host_that_envoy_would_fill_in_is_literal_and_a_warning() -> None:
    made = routed(f"{{{TO_ECHO}, requestHeadersPolicy: {{set: [{{name: Host, value: '%REQ(x)%'}}]}}}}")
    assert made.problems("HTTPProxy") == []
    assert [reason for reason, _ in made.warnings("HTTPProxy")] == ["IgnoredField"]
    assert forward_of(made).host == "%REQ(x)%"


@pytest.mark.parametrize("value", ["%REQ(x-a)%", "a %DOWNSTREAM_REMOTE_ADDRESS% b", "%CONTOUR_NAMESPACE%"])
def test_a_value_that_envoy_would_fill_in_is_literal_and_a_warning(value: str) -> None:
    made = routed(f"{{{TO_ECHO}, requestHeadersPolicy: {{set: [{{name: x-a, value: '{value}'}}]}}}}")
    assert [reason for reason, _ in made.warnings("HTTPProxy")] == ["IgnoredField"]
    assert route_of(made).request_headers == HeaderEdits(set=(("x-a", value),))
    rendered = dump(made.generation.rendered, show_secrets=False)["routes"][0]["virtualHosts"][0]["routes"][0]
    [added] = rendered["requestHeadersToAdd"]
    assert added["header"] == {"key": "x-a", "value": value.replace("%", "%%")}


# --- Without TLS

INSECURE = f"{{{TO_ECHO}, permitInsecure: true}}"
SETTINGS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: settings}
spec: {contour: CONTOUR}
"""


@pytest.mark.requirement("AZ-21")
def test_permit_insecure_conflicts_with_authorization_unless_it_is_off_or_checked_there() -> None:
    conflict = routed(INSECURE)
    assert [reason for reason, _ in conflict.problems("HTTPProxy")] == ["AuthPermitInsecureConflict"]
    assert (conflict.secure(), conflict.plain()) == (None, None)
    off = routed(INSECURE, settings=SETTINGS.replace("CONTOUR", "{httpproxy: {disablePermitInsecure: true}}"))
    assert off.problems("HTTPProxy") == []
    assert off.warnings("HTTPProxy") == [
        ("IgnoredField", "The configuration disables permitInsecure, so this field has no effect. Remove it.")
    ]
    plain = off.plain()
    assert plain is not None
    assert [(route.action, route.authorization) for route in plain.routes] == [
        (RedirectToHttps(443, "web.example"), Unprotected())
    ]
    checked = routed(INSECURE, settings=SETTINGS.replace("CONTOUR", "{allowInsecureAuthorization: true}"))
    assert checked.problems("HTTPProxy") == []
    plain = checked.plain()
    assert plain is not None
    assert [type(route.authorization) for route in plain.routes] == [Enforced]


def test_a_path_is_what_a_proxy_matches() -> None:
    made = routed(f"{{conditions: [{{exact: /a}}], {TO_ECHO}}}", f"{{conditions: [{{prefix: /a}}], {TO_ECHO}}}")
    assert [route.match.path for route in host_of(made).routes] == [Exact("/a"), Prefix("/a")]


def test_a_body_that_is_no_text_is_a_problem_and_no_crash() -> None:
    made = routed('{directResponsePolicy: {statusCode: 200, body: "\\ud800"}}')
    assert made.secure() is None
    assert made.problems("HTTPProxy") or made.generation.findings


def test_the_default_port_is_a_service_of_its_own_namespace() -> None:
    other = ECHO.replace("{name: echo}", "{name: echo, namespace: other}")
    made = routed(f"{{{TO_ECHO}}}", echo=other)
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["ServiceUnresolvedReference"]
