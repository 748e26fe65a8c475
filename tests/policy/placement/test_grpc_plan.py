"""What gRPC servers grant by themselves, and why not the rest."""

import json
from typing import Final, NamedTuple

import pytest
from tests.policy.compile.test_grpc_targets import ACCOUNT, OIDC, SERVER, SPIFFE, SPIFFE_OTHER
from tests.support.policies.compiled import compiled
from tests.support.policies.documents import anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.names import AGENT, OTHER, SHOP

from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS
from authplane.policy.placement.entry_placement import ASKS, CHOSEN, COMMA
from authplane.policy.placement.grpc_entries import ALL_HEADERS, PORTS, TOKENS, VALUE, WORDY, Grant
from authplane.policy.placement.grpc_plan import MANY, SHADOWED, ByServer, CallPlace, Grants, GrpcPlan, place_grpc
from authplane.policy.placement.grpc_reach import Anybody, Nobody, Reach, Workloads
from authplane.policy.placement.placement_model import CallOut
from authplane.policy.placement.placement_plan import SCREENED
from authplane.policy.placement.source_placement import NO_WORKLOAD

GET: Final = "/shop.Orders/Get"
ME: Final = frozenset({AGENT})
TO_GET: Final = f"[{{type: Inline, paths: [{GET}]}}]"
TO_PUT: Final = "[{type: Inline, paths: [/shop.Orders/Put]}]"
FAR: Final = "spiffe://far.example/a"
SPIFFE_FAR: Final = f"{{type: SPIFFE, spiffe: '{FAR}'}}"
WORKLOAD_TOKENS: Final = (
    "{issuers: [{url: 'https://issuer.example', jwtSvids: {trustDomain: cluster.local, audiences: [a]}}]}"
)


def plan(*documents: str) -> GrpcPlan:
    made = compiled(SERVER, SERVICES, *documents).policies
    way = made.chain(RequestTarget(backend=SHOP))
    assert way is not None
    return place_grpc(way, made.settings)


def places(made: GrpcPlan) -> list[CallPlace]:
    return [entry.place for each in made.policies for entry in each.entries]


def grants(*groups: tuple[Grant, ...], asked: Reach, tokens: bool = False, single: tuple[str, ...] = ()) -> Grants:
    absent = ("authorization", *IDENTITY_HEADERS) if tokens else IDENTITY_HEADERS
    return Grants(groups=groups, absent=absent, single=single, asked=asked)


def cel(expression: str) -> str:
    return f"[{{type: CEL, cel: {{expression: '{expression}'}}}}]"


def headers(name: str, value: str) -> str:
    return f"[{{type: Inline, headers: [{{name: {name}, value: {value!r}}}]}}]"


# --- Entries


class Case(NamedTuple):
    entry: str
    wanted: CallPlace


ENTRIES: Final = {
    "paths": Case(
        "[{type: Inline, paths: [/a.B/C, /d.*], methods: [GET, POST]}]", ByServer(Grant(paths=("/a.B/C", "/d.*")))
    ),
    "paths that nobody can call": Case("[{type: Inline, paths: [/a//b, /a/../b]}]", ByServer(None)),
    "paths of which one can be called": Case(
        "[{type: Inline, paths: [/a//b, /a.B/C]}]", ByServer(Grant(paths=("/a.B/C",)))
    ),
    "another method than that of gRPC": Case("[{type: Inline, methods: [GET]}]", ByServer(None)),
    "the method of gRPC": Case("[{type: Inline, methods: [POST]}]", ByServer(Grant())),
    "headers": Case(headers("X-A", "b c"), ByServer(Grant(headers=(("x-a", "b c"),)))),
    "a header with a comma": Case(headers("x-a", "b,c"), CallOut(COMMA)),
    "a header with blanks around": Case(headers("x-a", " b"), CallOut(VALUE)),
    "a header that is empty": Case(headers("x-a", ""), CallOut(VALUE)),
    "a header that is not ASCII": Case(headers("x-a", "é"), CallOut(VALUE)),
    "a binary header": Case(
        headers("x-bin", "AQI"), CallOut("reads the header x-bin, which gRPC servers see differently")
    ),
    "a header that is not the client's": Case(
        headers("te", "trailers"), CallOut("reads the header te, which gRPC servers see differently")
    ),
    "a secret": Case(
        headers("authorization", "a"), CallOut("reads the header authorization, which gRPC servers see differently")
    ),
    "ports": Case("[{type: Inline, ports: [1], paths: [/a.B/C]}]", CallOut(PORTS)),
    "an external service": Case(f"[{asks()}]", CallOut(ASKS)),
    "what always holds": Case(cel("true"), ByServer(Grant())),
    "an expression": Case(
        cel('request.path == "/a.B/C" && request.headers["x-a"].startsWith("b")'),
        ByServer(Grant(expression='request.path == "/a.B/C" && request.headers["x-a"].startsWith("b")')),
    ),
    "an expression on a header in upper case": Case(
        cel('request.headers["X-A"] == "b"'),
        CallOut("names the header X-A; header names are lower case"),
    ),
    "an expression on all headers": Case(cel("size(request.headers) > 1"), CallOut(ALL_HEADERS)),
    "an expression on who asks": Case(cel("has(identity.sub)"), CallOut("reads identity")),
    "an expression on the time": Case(
        cel('request.time > timestamp("2020-01-01T00:00:00Z")'), CallOut("reads request.time")
    ),
    "an expression with a loop": Case(
        cel('["a"].exists(x, x == request.path)'),
        CallOut("has an expression that gRPC servers do not support: exists() is not supported"),
    ),
    "an expression that is written without blanks": Case(
        cel("||".join(f'!(request.path=="{each}")' for each in range(160))), CallOut(WORDY)
    ),
    "an expression that needs escapes": Case(cel(f'request.path == r"{chr(92) * 3900}a"'), CallOut(WORDY)),
    "an expression with a choice": Case(
        cel('request.path == "/a.B/C" ? true : false'),
        CallOut("has an expression that gRPC servers do not support: ?: is not supported"),
    ),
}


@pytest.mark.parametrize("case", ENTRIES.values(), ids=ENTRIES.keys())
def test_an_entry_is_granted_by_the_server_where_it_gives_the_same_answer(case: Case) -> None:
    assert places(plan(policy(anybody(case.entry)))) == [case.wanted]


@pytest.mark.parametrize(
    "name", ["authorization", "content-type", "host", "te", "grpc-timeout", "grpc-", "a-bin", "-bin", "a!b", "a~"]
)
def test_a_header_that_a_server_may_see_otherwise_is_left_to_the_policy_server(name: str) -> None:
    seen_otherwise = CallOut(f"reads the header {name}, which gRPC servers see differently")
    assert places(plan(policy(anybody(headers(name, "a"))))) == [seen_otherwise]
    assert places(plan(policy(anybody(cel(f'request.headers["{name}"] == "a"'))))) == [seen_otherwise]


@pytest.mark.parametrize("name", ["x-grpc-a", "a-bin-b", "bin", "grpc", "a_b", "a.b", "x0", "content-types", "tea"])
def test_a_header_that_a_server_sees_as_it_was_sent_is_looked_at_there(name: str) -> None:
    assert places(plan(policy(anybody(headers(name, "a"))))) == [ByServer(Grant(headers=((name, "a"),)))]
    expression = f'request.headers["{name}"] == "a"'
    assert places(plan(policy(anybody(cel(expression))))) == [ByServer(Grant(expression=expression))]


@pytest.mark.parametrize("value", ["a", "!", "~", "a b", "! ~"])
def test_the_value_of_a_header_is_plain_text(value: str) -> None:
    assert places(plan(policy(anybody(headers("x-a", value))))) == [ByServer(Grant(headers=(("x-a", value),)))]
    for odd in (f" {value}", f"{value} ", f"{value}\x7f", f"{value}\t"):
        assert places(plan(policy(anybody(headers("x-a", odd).replace(repr(odd), json.dumps(odd)))))) == [
            CallOut(VALUE)
        ]


@pytest.mark.parametrize("variable", ["request.path", "request.url_path", "request.method", "request.query"])
def test_what_a_server_knows_of_a_call_may_be_read_there(variable: str) -> None:
    expression = f'{variable} == "a"'
    assert places(plan(policy(anybody(cel(expression))))) == [ByServer(Grant(expression=expression))]


SOURCES: Final = {
    "a workload": (SPIFFE, ByServer(Grant(ids=ME, paths=(GET,)))),
    "a ServiceAccount": (ACCOUNT, ByServer(Grant(ids=ME, paths=(GET,)))),
    "whoever has a token": (OIDC, CallOut(TOKENS)),
    "a trust domain": ("{type: SPIFFE, spiffe: 'spiffe://example.org'}", CallOut(NO_WORKLOAD)),
}


@pytest.mark.parametrize(("source", "wanted"), SOURCES.values(), ids=SOURCES.keys())
def test_workloads_are_known_to_the_server_and_bearers_of_tokens_are_not(source: str, wanted: CallPlace) -> None:
    assert places(plan(policy(rule(source, TO_GET)))) == [wanted]


def test_a_rule_of_a_later_kind_without_entries_grants_everything() -> None:
    made = plan(policy(f"[{{name: all, source: {SPIFFE}}}]", kind="XAccessPolicy"))
    assert made.grants == grants((Grant(ids=ME),), asked=Reach(others=Nobody()))


# --- Plans


NOBODY: Final = Reach(others=Nobody())


class Whole(NamedTuple):
    documents: tuple[str, ...]
    wanted: Grants | None


PLANS: Final = {
    "one policy": Whole((policy(rule(SPIFFE, TO_GET)),), grants((Grant(ids=ME, paths=(GET,)),), asked=NOBODY)),
    "what is not native is asked about, and only for whom it may be": Whole(
        (policy(rule(SPIFFE, TO_GET)[:-1] + ", " + rule(SPIFFE_OTHER, f"[{asks()}]")[1:]),),
        grants((Grant(ids=ME, paths=(GET,)),), asked=Reach(others=Workloads(frozenset({OTHER})))),
    ),
    "policies must all grant": Whole(
        (policy(rule(SPIFFE, TO_GET)), policy(anybody(headers("x-a", "b")), name="q")),
        grants((Grant(ids=ME, paths=(GET,)),), (Grant(headers=(("x-a", "b"),)),), asked=NOBODY, single=("x-a",)),
    ),
    "policies must all grant, and one of them asks": Whole(
        (policy(rule(SPIFFE, TO_GET)), policy(anybody(f"{headers('x-a', 'b')[:-1]}, {asks()}]"), name="q")),
        grants(
            (Grant(ids=ME, paths=(GET,)),),
            (Grant(headers=(("x-a", "b"),)),),
            asked=Reach(paths=((GET, Workloads(ME)),), others=Nobody()),
            single=("x-a",),
        ),
    ),
    "of policies for different workloads nobody is granted anything": Whole(
        (policy(rule(SPIFFE, TO_GET)), policy(rule(SPIFFE_OTHER, TO_GET), name="q")), None
    ),
    "one policy that only the policy server can grant": Whole(
        (policy(rule(SPIFFE, TO_GET)), policy(anybody(f"[{asks()}]"), name="q")), None
    ),
    "one policy suffices": Whole(
        (
            settings("{policyComposition: Any}"),
            policy(rule(SPIFFE, TO_GET)),
            policy(rule(SPIFFE_OTHER, TO_PUT), name="q"),
            policy(anybody(f"[{asks()}]"), name="r"),
        ),
        grants(
            (Grant(ids=ME, paths=(GET,)), Grant(ids=frozenset({OTHER}), paths=("/shop.Orders/Put",))),
            asked=Reach(others=Anybody()),
        ),
    ),
    "where tokens are looked at, calls with one are asked about": Whole(
        (policy(rule(OIDC, TO_PUT)[:-1] + ", " + anybody(TO_GET)[1:]),),
        grants(
            (Grant(paths=(GET,)),),
            asked=Reach(paths=((GET, Nobody()), ("/shop.Orders/Put", Anybody())), others=Nobody()),
            tokens=True,
        ),
    ),
    "who could come with a token is told so by the policy server": Whole(
        (settings(WORKLOAD_TOKENS), policy(rule(SPIFFE, TO_GET))),
        grants((Grant(ids=ME, paths=(GET,)),), asked=Reach(paths=((GET, Anybody()),), others=Nobody()), tokens=True),
    ),
    "a token may be of another workload than the certificate": Whole(
        (settings(WORKLOAD_TOKENS), policy(rule(SPIFFE_FAR, TO_GET))),
        grants((Grant(ids=frozenset({FAR}), paths=(GET,)),), asked=NOBODY, tokens=True),
    ),
    "a policy with a mistake": Whole((policy(rule(SPIFFE, TO_GET)), policy("[{tools: [a]}]", name="q")), None),
    "a policy with a mistake where one suffices": Whole(
        (settings("{policyComposition: Any}"), policy(rule(SPIFFE, TO_GET)), policy("[{tools: [a]}]", name="q")), None
    ),
}


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS.keys())
def test_a_server_grants_what_all_policies_grant_together(case: Whole) -> None:
    assert plan(*case.documents).grants == case.wanted


SCREEN: Final = policy(kind="XAccessPolicy", name="q", more=f"  action: ExternalAuth\n  externalAuth: {external()}")
OBSTACLES: Final = {
    "the policy server is to decide": (settings("{placement: CallOut}"), CHOSEN),
    "an external service is asked about everything": (SCREEN, SCREENED),
    "a policy in shadow": (policy(anybody(TO_GET), name="q", more="  mode: Shadow"), SHADOWED),
}


@pytest.mark.parametrize(("document", "reason"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_there_are_reasons_to_leave_everything_to_the_policy_server(document: str, reason: str) -> None:
    made = plan(policy(rule(SPIFFE, TO_GET)), document)
    assert places(made) == [CallOut(reason)]
    assert made.grants is None


def test_a_server_is_not_told_more_than_it_can_look_through() -> None:
    paths = "[{type: Inline, paths: [/a.B/C, /a.B/D, /a.B/E]}]"

    def crowd(size: int) -> GrpcPlan:
        workloads = [f"spiffe://example.org/{index}" for index in range(size)]
        return plan(policy(rule(f"{{type: SPIFFE, spiffe: {workloads}}}", paths)))

    assert crowd(1250).grants is not None
    assert places(crowd(1251)) == [CallOut(MANY)]
    assert crowd(1251).grants is None


LONG = {
    "paths": (500, 20, f"[{{type: Inline, paths: [{', '.join(f'/a.B/{letter * 1000}' for letter in 'cdefg')}]}}]"),
    "headers": (
        500,
        20,
        "[{type: Inline, headers: [{name: x-a, value: %s}, {name: x-b, value: %s}]}]" % (("v" * 4000,) * 2),
    ),
    "ids": (700, 2000, TO_GET),
}


@pytest.mark.parametrize(("ids", "length", "entries"), LONG.values(), ids=LONG.keys())
def test_long_texts_count_as_much_as_many_short_ones(ids: int, length: int, entries: str) -> None:
    workloads = [f"spiffe://example.org/{'x' * length}{index}" for index in range(ids)]
    assert places(plan(policy(rule(f"{{type: SPIFFE, spiffe: {workloads}}}", entries)))) == [CallOut(MANY)]
