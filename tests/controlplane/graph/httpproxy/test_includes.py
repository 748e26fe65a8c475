"""HTTPProxies that include others."""

import pytest
from tests.support.resources.contour_documents import ECHO, PROXY, World, whole, world

from authplane.controlplane.graph.model.match_model import Exact, HeaderMatch, Match, Prefix, Regex, TextTest
from authplane.controlplane.graph.model.route_authorization import Disabled, Enforced, Unprotected
from authplane.controlplane.graph.model.route_model import Forward, RedirectToHttps, Respond
from authplane.core.names import ObjectName
from authplane.core.problems import Severity

ROUTES = "  routes:\n  - services:\n    - {name: echo, port: 80}\n"
WEB = ObjectName("default", "web")


def root(includes: str, *, routes: str = "", name: str = "web", policy: str = "") -> str:
    """Return the checked host of the world with these includes instead of its route."""
    text = PROXY.replace(ROUTES, f"  includes: {includes}\n" + (f"  routes: {routes}\n" if routes else ""))
    text = text.replace("{name: web}", f"{{name: {name}}}").replace("web.example", f"{name}.example")
    return text.replace("{name: auth}", f"{{name: auth}}\n      authPolicy: {policy}") if policy else text


def child(name: str, *, routes: str = "", includes: str = "", namespace: str = "default") -> str:
    parts = [f"  routes: {routes}\n"] if routes else []
    parts += [f"  includes: {includes}\n"] if includes else []
    head = "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\n"
    return f"{head}metadata: {{name: {name}, namespace: {namespace}}}\nspec:\n" + ("".join(parts) or "  routes: []\n")


def to_echo(*, conditions: str = "[]", more: str = "") -> str:
    return f"{{conditions: {conditions}, services: [{{name: echo, port: 80}}]{', ' + more if more else ''}}}"


def secure_routes(made: World, fqdn: str = "web.example") -> list[tuple[str, str, Match, str]]:
    """Return whose each route is, what becomes of it, what it matches and how it is checked."""
    secure = made.secure(fqdn)
    assert secure is not None, made.generation.findings
    return [
        (
            route.holder.partition("/")[2],
            str(route.action.status) if isinstance(route.action, Respond) else type(route.action).__name__,
            route.match,
            type(route.authorization).__name__,
        )
        for route in secure.host.routes
    ]


def prefix(path: str) -> Match:
    return Match(path=Prefix(path))


def test_routes_of_an_included_proxy_are_below_its_prefix() -> None:
    made = world(
        proxy=root("[{name: a, conditions: [{prefix: /a}]}]", routes=f"[{to_echo()}]"),
        a=child(
            "a", routes=f"[{to_echo()}, {to_echo(conditions='[{exact: /x}]')}, {to_echo(conditions='[{prefix: /y}]')}]"
        ),
    )
    assert made.problems("HTTPProxy") == []
    assert secure_routes(made) == [
        ("a", "Forward", Match(path=Exact("/a/x")), "Enforced"),
        ("a", "Forward", prefix("/a/y"), "Enforced"),
        ("a", "Forward", prefix("/a"), "Enforced"),
        ("web", "Forward", prefix("/"), "Enforced"),
    ]
    secure = made.secure()
    assert secure is not None
    assert secure.host.proxies[1:] == (ObjectName("default", "a"),)


def test_includes_may_include_and_cross_namespaces() -> None:
    made = world(
        proxy=root("[{name: a, namespace: team, conditions: [{prefix: /a/}, {header: {name: x-v, exact: '2'}}]}]"),
        a=child("a", namespace="team", includes="[{name: b, conditions: [{prefix: /b}]}]"),
        b=child("b", namespace="team", routes=f"[{to_echo(conditions='[{prefix: /c}]')}]"),
        team=ECHO.replace("{name: echo}", "{name: echo, namespace: team}").replace(
            "{name: echo-1,", "{name: echo-1, namespace: team,"
        ),
    )
    assert made.problems("HTTPProxy") == []
    header = HeaderMatch(name="x-v", test=TextTest.EXACT, text="2")
    assert secure_routes(made) == [("b", "Forward", Match(path=Prefix("/a/b/c"), headers=(header,)), "Enforced")]
    secure = made.secure()
    assert secure is not None
    assert isinstance(secure.host.routes[0].action, Forward)
    assert secure.host.routes[0].action.targets[0].cluster == "service/team/echo/80"


def test_a_proxy_may_be_included_twice_and_by_two_roots() -> None:
    made = world(
        proxy=root("[{name: a, conditions: [{prefix: /1}]}, {name: a, conditions: [{prefix: /2}]}]"),
        other=root("[{name: a}]", name="other"),
        a=child("a", routes=f"[{to_echo()}]"),
    )
    assert made.problems("HTTPProxy") == []
    assert [match for _, _, match, _ in secure_routes(made)] == [prefix("/1"), prefix("/2")]
    assert [match for _, _, match, _ in secure_routes(made, "other.example")] == [prefix("/")]


def test_a_pattern_cannot_leave_the_prefix_of_its_include() -> None:
    made = world(
        proxy=root("[{name: a, conditions: [{prefix: /team}]}]"),
        a=child("a", routes=f"[{to_echo(conditions='[{regex: /x|/admin}]')}]"),
    )
    assert [match for _, _, match, _ in secure_routes(made)] == [Match(path=Regex("/team(?:/x|/admin)"))]


@pytest.mark.requirement("EN-10")
def test_a_missing_include_answers_502_behind_authorization() -> None:
    made = world(
        proxy=root(
            "[{name: gone, conditions: [{prefix: /a}]}]",
            routes=f"[{to_echo()}]",
            policy="{disabled: true, context: {a: b}}",
        )
    )
    assert made.problems("HTTPProxy") == [("IncludeNotFound", "include default/gone not found. Add it.")]
    assert secure_routes(made) == [
        ("web", "502", prefix("/a"), "Enforced"),
        ("web", "Forward", prefix("/"), "Disabled"),
    ]
    secure = made.secure()
    assert secure is not None
    [error, _] = secure.host.routes
    assert isinstance(error.authorization, Enforced)
    assert error.authorization.context == ()


def test_a_missing_include_without_conditions_leaves_the_other_routes_alone() -> None:
    made = world(proxy=root("[{name: gone}]", routes=f"[{to_echo()}]"))
    assert secure_routes(made) == [("web", "Forward", prefix("/"), "Enforced")]
    assert secure_routes(world(proxy=root("[{name: gone}]"))) == [("web", "502", prefix("/"), "Enforced")]


def test_an_included_proxy_that_cannot_be_read_is_not_called_missing() -> None:
    made = world(proxy=root("[{name: a, conditions: [{prefix: /a}]}]"), a=child("a", routes="[{services: nonsense}]"))
    assert ("IncludeNotFound", "include default/a cannot be read. Correct it.") in made.problems("HTTPProxy", "web")
    assert secure_routes(made) == [("web", "502", prefix("/a"), "Enforced")]


def test_a_root_cannot_be_included() -> None:
    made = world(
        proxy=root("[{name: other, conditions: [{prefix: /a}]}]"),
        other=root("[]", routes=f"[{to_echo()}]", name="other"),
    )
    assert made.problems("HTTPProxy", "web") == [
        (
            "RootIncludesRoot",
            "root httpproxy cannot include another root httpproxy (default/other). Remove virtualhost from "
            "default/other.",
        )
    ]
    assert made.problems("HTTPProxy", "other") == []
    assert secure_routes(made) == [("web", "502", prefix("/a"), "Enforced")]


def test_a_cycle_ends_where_it_closes() -> None:
    made = world(
        proxy=root("[{name: a, conditions: [{prefix: /a}]}]"),
        a=child("a", routes=f"[{to_echo()}]", includes="[{name: b, conditions: [{prefix: /b}]}]"),
        b=child("b", routes=f"[{to_echo()}]", includes="[{name: a, conditions: [{prefix: /a}]}]"),
    )
    assert made.problems("HTTPProxy", "web") == []
    assert made.problems("HTTPProxy", "b") == []
    assert made.problems("HTTPProxy", "a") == [
        (
            "IncludeCreatesCycle",
            "include creates an include cycle: default/web -> default/a -> default/b -> default/a. "
            "Remove one of the includes.",
        )
    ]
    [found] = [each for each in made.generation.findings if each.problem.reason == "IncludeCreatesCycle"]
    assert found.problem.path == ("spec", "includes", 0)
    assert secure_routes(made) == [
        ("b", "502", prefix("/a/b/a"), "Enforced"),
        ("b", "Forward", prefix("/a/b"), "Enforced"),
        ("a", "Forward", prefix("/a"), "Enforced"),
    ]


def test_a_proxy_that_includes_itself_is_a_cycle() -> None:
    made = world(proxy=root("[{name: a}]"), a=child("a", includes="[{name: a, conditions: [{prefix: /a}]}]"))
    assert made.problems("HTTPProxy", "a") == [
        (
            "IncludeCreatesCycle",
            "include creates an include cycle: default/web -> default/a -> default/a. Remove one of the includes.",
        )
    ]


@pytest.mark.slow
def test_includes_that_multiply_have_an_end() -> None:
    both = "[{{name: {0}, conditions: [{{prefix: /1}}]}}, {{name: {0}, conditions: [{{prefix: /2}}]}}]"
    depth = 15
    chain = {f"p{index}": child(f"p{index}", includes=both.format(f"p{index + 1}")) for index in range(depth)}
    last = {f"p{depth}": child(f"p{depth}", routes=f"[{to_echo()}]")}
    made = world(proxy=root("[{name: p0}]"), **chain, **last)
    reasons = {reason for index in range(depth) for reason, _ in made.problems("HTTPProxy", f"p{index}")}
    assert reasons == {"IncludesTooMany"}
    assert made.problems("HTTPProxy", "web") == []
    secure = made.secure()
    assert secure is not None
    assert len(secure.host.routes) < 15_000


@pytest.mark.requirement("AZ-23")
def test_an_error_in_an_included_proxy_is_its_own_and_closes_it() -> None:
    broken = f"[{to_echo()}, {to_echo(conditions='[{prefix: /x}]', more='timeoutPolicy: {response: soon}')}]"
    made = world(
        proxy=root("[{name: a, conditions: [{prefix: /a}]}]", routes=f"[{to_echo()}]"), a=child("a", routes=broken)
    )
    assert made.problems("HTTPProxy", "web") == []
    [(reason, message)] = made.problems("HTTPProxy", "a")
    assert reason == "TimeoutPolicyNotValid"
    assert message.startswith("route.timeoutPolicy failed to parse: error parsing response timeout: unable to parse")
    assert secure_routes(made) == [
        ("a", "503", prefix("/a/x"), "Enforced"),
        ("a", "503", prefix("/a"), "Enforced"),
        ("web", "Forward", prefix("/"), "Enforced"),
    ]
    [error] = made.status("HTTPProxy", "a").conditions[0].errors
    assert (error.type, error.reason) == ("RouteError", "TimeoutPolicyNotValid")
    assert made.status("HTTPProxy", "web").conditions[0].status == "True"


def test_a_broken_proxy_hands_nothing_over_to_the_routes_around_it() -> None:
    """Whoever asks for the strict path below the broken one must not meet the open route of the root."""
    made = world(
        proxy=root(
            "[{name: a, conditions: [{prefix: /a}]}]", routes=f"[{to_echo(more='authPolicy: {disabled: true}')}]"
        ),
        a=child("a", routes=f"[{to_echo(conditions='[{prefix: nonsense}]')}]"),
    )
    assert secure_routes(made) == [("a", "503", prefix("/a"), "Enforced"), ("web", "Forward", prefix("/"), "Disabled")]


def test_a_missing_service_of_an_included_proxy_costs_its_route_only() -> None:
    made = world(
        proxy=root("[{name: a}]"),
        a=child("a", routes=f"[{to_echo()}, {{conditions: [{{prefix: /x}}], services: [{{name: gone, port: 80}}]}}]"),
    )
    assert [reason for reason, _ in made.problems("HTTPProxy", "a")] == ["ServiceUnresolvedReference"]
    assert secure_routes(made) == [
        ("a", "503", prefix("/x"), "Enforced"),
        ("a", "Forward", prefix("/"), "Enforced"),
    ]


def test_a_broken_proxy_below_another_does_not_close_it() -> None:
    made = world(
        proxy=root("[{name: a}]"),
        a=child("a", routes=f"[{to_echo()}]", includes="[{name: b, conditions: [{prefix: /b}]}]"),
        b=child("b", routes="[{services: []}]"),
    )
    assert made.problems("HTTPProxy", "b") == [
        (
            "RouteActionCountNotValid",
            "must set exactly one of route.services or route.requestRedirectPolicy or "
            "route.directResponsePolicy. Set one.",
        )
    ]
    assert secure_routes(made) == [("b", "503", prefix("/b"), "Enforced"), ("a", "Forward", prefix("/"), "Enforced")]


BAD_INCLUDES = {
    "an exact path": (
        "[{name: a, conditions: [{exact: /a}]}]",
        ("PathMatchConditionsNotValid", "include: exact conditions are not allowed in includes block. Use prefix."),
    ),
    "a path without slash": (
        "[{name: a, conditions: [{prefix: a}]}]",
        (
            "PathMatchConditionsNotValid",
            "include: prefix conditions must start with /, a was supplied. Add a slash in front.",
        ),
    ),
    "the same conditions twice": (
        "[{name: a, conditions: [{prefix: /a}]}, {name: b, conditions: [{prefix: /a}]}]",
        ("DuplicateMatchConditions", "duplicate conditions defined on an include. Remove one of them."),
    ),
}


@pytest.mark.parametrize(("includes", "want"), BAD_INCLUDES.values(), ids=BAD_INCLUDES.keys())
def test_an_include_that_cannot_be_placed_withdraws_the_root(includes: str, want: tuple[str, str]) -> None:
    made = world(proxy=root(includes), a=child("a", routes=f"[{to_echo()}]"), b=child("b", routes=f"[{to_echo()}]"))
    assert made.problems("HTTPProxy", "web") == [want]
    assert made.secure() is None
    [error] = made.status("HTTPProxy", "web").conditions[0].errors
    assert (error.type, error.reason, error.message) == ("IncludeError", *want)


def lost_to(winner: str, words: str) -> tuple[str, str]:
    """Return what the loser of two routes with one match is told."""
    message = (
        f"This route gets no requests: {winner} has the same conditions ({words}) and comes later, and the last route "
        "wins. Remove one of the routes."
    )
    return ("DuplicateMatchConditions", message)


def test_of_two_routes_with_one_match_the_last_is_served_and_the_other_told() -> None:
    made = world(
        proxy=root("[{name: a}, {name: b}]", routes=f"[{to_echo(conditions='[{prefix: /x}]')}]"),
        a=child("a", routes=f"[{to_echo()}]"),
        b=child(
            "b", routes=f"[{to_echo()}, {to_echo(conditions='[{prefix: /b}]')}, {to_echo(conditions='[{prefix: /x}]')}]"
        ),
    )
    assert made.problems("HTTPProxy") == made.warnings("HTTPProxy", "web") == []
    assert made.warnings("HTTPProxy", "a") == [lost_to("a route of HTTPProxy default/b", "/")]
    assert made.warnings("HTTPProxy", "b") == [lost_to("a route of HTTPProxy default/web", "/x")]
    assert secure_routes(made) == [
        ("b", "Forward", prefix("/b"), "Enforced"),
        ("web", "Forward", prefix("/x"), "Enforced"),
        ("b", "Forward", prefix("/"), "Enforced"),
    ]


def test_an_includer_comes_after_what_it_includes_and_a_later_branch_after_an_earlier_one() -> None:
    made = world(
        proxy=root("[{name: a}, {name: b}]"),
        a=child("a", routes=f"[{to_echo()}]", includes="[{name: c}]"),
        b=child("b", includes="[{name: d}]", routes=f"[{to_echo(conditions='[{prefix: /x}]')}]"),
        c=child("c", routes=f"[{to_echo()}, {to_echo(conditions='[{prefix: /c}]')}]"),
        d=child("d", routes=f"[{to_echo()}, {to_echo(conditions='[{prefix: /x}]')}]"),
    )
    assert made.problems("HTTPProxy") == []
    assert [(name, match.path.path) for name, _, match, _ in secure_routes(made)] == [
        ("c", "/c"),
        ("b", "/x"),
        ("d", "/"),
    ]


def test_a_later_include_keeps_its_requests_when_it_has_an_error() -> None:
    made = world(
        proxy=root("[{name: a}, {name: b}]"),
        a=child("a", routes=f"[{to_echo(more='authPolicy: {disabled: true}')}]"),
        b=child("b", routes=f"[{to_echo(more='timeoutPolicy: {response: soon}')}]"),
    )
    assert [reason for reason, _ in made.problems("HTTPProxy", "b")] == ["TimeoutPolicyNotValid"]
    assert secure_routes(made) == [("b", "503", prefix("/"), "Enforced")]


def test_of_two_routes_of_an_included_proxy_with_one_match_the_later_one_is_served() -> None:
    later = "{directResponsePolicy: {statusCode: 204}}"
    made = world(
        proxy=root("[{name: a}]"),
        a=child("a", routes=f"[{to_echo()}, {later}, {to_echo(conditions='[{prefix: /b}]')}]"),
    )
    assert made.problems("HTTPProxy", "a") == []
    assert made.warnings("HTTPProxy", "a") == [lost_to("routes[1]", "/")]
    assert secure_routes(made) == [("a", "Forward", prefix("/b"), "Enforced"), ("a", "204", prefix("/"), "Enforced")]


def test_a_proxy_that_is_included_twice_at_one_place_is_there_once() -> None:
    made = world(proxy=root("[{name: a}, {name: a}]"), a=child("a", routes=f"[{to_echo()}]"))
    assert made.problems("HTTPProxy") == []
    assert secure_routes(made) == [("a", "Forward", prefix("/"), "Enforced")]


def test_a_proxy_in_two_places_can_conflict_with_itself() -> None:
    made = world(
        proxy=root("[{name: a}, {name: a, conditions: [{prefix: /x}]}]"),
        a=child(
            "a",
            routes=f"[{to_echo(conditions='[{prefix: /x/y}]')}, "
            "{conditions: [{prefix: /y}], directResponsePolicy: {statusCode: 204}}]",
        ),
    )
    assert made.warnings("HTTPProxy", "a") == [lost_to("a route of HTTPProxy default/a", "/x/y")]
    assert secure_routes(made) == [
        ("a", "Forward", prefix("/x/x/y"), "Enforced"),
        ("a", "204", prefix("/x/y"), "Enforced"),
        ("a", "204", prefix("/y"), "Enforced"),
    ]


def test_the_same_problem_in_two_places_is_reported_once() -> None:
    made = world(
        proxy=root("[{name: a, conditions: [{prefix: /1}]}, {name: a, conditions: [{prefix: /2}]}]"),
        a=child("a", routes="[{services: []}]"),
    )
    assert [reason for reason, _ in made.problems("HTTPProxy", "a")] == ["RouteActionCountNotValid"]


@pytest.mark.requirement("AZ-12")
def test_an_included_route_has_the_authorization_of_the_root_and_its_own_policy() -> None:
    made = world(
        proxy=root("[{name: a}]", policy="{context: {a: host, b: host}}"),
        a=child(
            "a",
            routes=f"[{to_echo(more='authPolicy: {context: {b: route}}')}, "
            f"{to_echo(conditions='[{prefix: /open}]', more='authPolicy: {disabled: true}')}]",
        ),
    )
    secure = made.secure()
    assert secure is not None
    [opened, checked] = secure.host.routes
    assert opened.authorization == Disabled()
    assert isinstance(checked.authorization, Enforced)
    assert checked.authorization.context == (("a", "host"), ("b", "route"))


@pytest.mark.requirement("AZ-21")
def test_an_included_route_cannot_be_served_unchecked_over_http() -> None:
    made = world(
        proxy=root("[{name: a}]"),
        a=child("a", routes=f"[{to_echo(more='permitInsecure: true')}]"),
    )
    assert [reason for reason, _ in made.problems("HTTPProxy", "a")] == ["AuthPermitInsecureConflict"]
    assert secure_routes(made) == [("a", "503", prefix("/"), "Enforced")]
    plain = made.plain()
    assert plain is not None
    assert [(route.action, route.authorization) for route in plain.routes] == [
        (RedirectToHttps(443, "web.example"), Unprotected())
    ]


def test_an_orphan_names_the_proxy_that_cannot_be_read_and_may_include_it() -> None:
    made = world(proxy=root("[{name: a}]").replace("routes:", "rutes:").replace("includes:", "inclodes:"), a=child("a"))
    assert made.problems("HTTPProxy", "a") == [
        (
            "Orphaned",
            "this HTTPProxy is not part of a delegation chain from a root HTTPProxy. "
            "HTTPProxy/default/web cannot be read and may include this HTTPProxy. Correct it first.",
        )
    ]


@pytest.mark.requirement("RB-3")
def test_who_is_not_included_is_orphaned() -> None:
    made = world(
        proxy=root("[{name: a}]"),
        a=child("a", routes=f"[{to_echo()}]"),
        b=child("b", includes="[{name: c}]"),
        c=child("c"),
    )
    orphaned = ("Orphaned", "this HTTPProxy is not part of a delegation chain from a root HTTPProxy")
    assert made.problems("HTTPProxy", "a") == []
    assert made.problems("HTTPProxy", "b") == made.problems("HTTPProxy", "c") == [orphaned]


def test_the_order_of_documents_does_not_matter() -> None:
    parts = whole() | {
        "proxy": root("[{name: a}, {name: b, conditions: [{prefix: /b}]}]"),
        "a": child("a", routes=f"[{to_echo()}]"),
        "b": child("b", routes=f"[{to_echo(conditions='[{regex: /x+}]')}]", includes="[{name: gone}]"),
    }
    one, two = World(parts.values()), World(reversed(parts.values()))
    assert one.graph == two.graph
    assert one.problems("HTTPProxy") == two.problems("HTTPProxy")
    assert one.problems("HTTPProxy", severity=Severity.WARNING) == []


def test_includes_that_lead_to_includes_count_before_they_are_followed() -> None:
    many = "[" + ", ".join(["{name: %s}"] * 120) + "]"
    made = world(proxy=root(many.replace("%s", "a")), a=child("a", includes=many.replace("%s", "b")), b=child("b"))
    assert made.problems("HTTPProxy", "web")[0] == (
        "IncludesTooMany",
        "The root HTTPProxy includes more than 10000 routes, includes and HTTPProxies in total. Split it.",
    )


@pytest.mark.parametrize("include", ["missing", "broken"])
def test_a_rewritten_prefix_does_not_take_over_what_an_include_that_leads_nowhere_was_for(include: str) -> None:
    rewrite = "authPolicy: {disabled: true}, pathRewritePolicy: {replacePrefix: [{replacement: /}]}"
    made = world(
        proxy=root(
            f"[{{name: {include}, conditions: [{{prefix: /a/}}]}}]",
            routes=f"[{to_echo(conditions='[{prefix: /a}]', more=rewrite)}]",
        ),
        broken=child("broken", routes=f"[{to_echo(conditions='[{prefix: x}]')}]"),
    )
    status = {"missing": ("web", "502"), "broken": ("broken", "503")}[include]
    assert secure_routes(made) == [
        (*status, prefix("/a/"), "Enforced"),
        ("web", "Forward", prefix("/a"), "Disabled"),
    ]
