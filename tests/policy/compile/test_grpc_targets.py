"""gRPC servers as targets: what rules may ask for there, how they are judged, and whom a server may refuse unasked."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import compiled, errors, policies
from tests.support.policies.documents import BACKEND, anybody, policy, rule
from tests.support.policies.documents import settings as configured
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.names import AGENT, OTHER, SHOP

from authplane.policy.check.decision import Deny
from authplane.policy.check.request import Peer, Request
from authplane.policy.compile.compile_policies import Compiled
from authplane.policy.placement.grpc_reach import Anybody, Callers, Nobody, Reach, Workloads, build_reach
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.verdicts.effects import Granted

SERVER = BACKEND.replace("{type: MCP, mcp: {serviceName: shop, port: 80}}", "{type: GRPC, grpc: {port: 50051}}")
SPIFFE = f"{{type: SPIFFE, spiffe: {AGENT}}}"
SPIFFE_OTHER = f"{{type: SPIFFE, spiffe: {OTHER}}}"
ACCOUNT = "{type: ServiceAccount, serviceAccount: default/agent}"
OIDC = "{type: OIDC, oidc: {issuerUrl: 'https://issuer.example', audiences: [shop]}}"
GET, PUT = "/shop.Orders/Get", "/shop.Orders/Put"


def call(path: str = GET, **headers: str) -> Request:
    """Return what the check of a gRPC server shows: no body, no host."""
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(method="POST", path=path, headers=pairs, destination=Peer(port=50051))


def inline(*paths: str, more: str = "") -> str:
    return f"[{{type: Inline, paths: {list(paths)}{more}}}]"


# --- What rules may ask for


class Case(NamedTuple):
    rules: str
    errors: list[str]


BODY = "A gRPC server does not report the body of a call. Remove this condition. [NotKnownToServer]"
HOST = "A gRPC server does not report the host of a call. Remove this condition. [NotKnownToServer]"
PLACE = "spec.rules[0].authorization[0]"
RULES = {
    "paths and headers": Case(rule(SPIFFE, inline(GET, more=", headers: [{name: x-a, value: b}]")), []),
    "methods and ports": Case(rule(SPIFFE, "[{type: Inline, methods: [POST], ports: [50051]}]"), []),
    "an expression on path and identity": Case(
        rule(OIDC, '[{type: CEL, cel: \'request.path == "/a.B/C" && identity.sub == "x"\'}]'), []
    ),
    "an external service": Case(anybody(f"[{asks()}]"), []),
    "tools": Case(rule(), [f"{PLACE}.tools: {BODY}"]),
    "the first form of tools": Case(f"[{{source: {SPIFFE}, tools: [add]}}]", [f"spec.rules[0].tools: {BODY}"]),
    "methods of MCP": Case(anybody("[{type: Inline, mcp: {methods: [{name: tools/call}]}}]"), [f"{PLACE}.mcp: {BODY}"]),
    "an expression on MCP": Case(
        anybody("[{type: CEL, cel: 'request.mcp.tool_name == \"add\"'}]"), [f"{PLACE}.cel.expression: {BODY}"]
    ),
    "an expression on the host": Case(
        anybody("[{type: CEL, cel: 'request.host == \"shop\"'}]"), [f"{PLACE}.cel.expression: {HOST}"]
    ),
    "hosts": Case(anybody("[{type: Inline, hosts: [shop.example]}]"), [f"{PLACE}.hosts: {HOST}"]),
    "a body for an external service": Case(
        anybody(f"[{{type: ExternalAuth, externalAuth: {external(more=', forwardBody: {maxSize: 10}')}}}]"),
        [f"{PLACE}.externalAuth.forwardBody: {BODY}"],
    ),
}


@pytest.mark.parametrize("case", RULES.values(), ids=RULES.keys())
def test_what_is_not_known_of_a_call_is_an_error_of_the_policy_and_it_denies(case: Case) -> None:
    made = compiled(SERVER, SERVICES, policy(case.rules))
    assert errors(made) == case.errors
    [standing] = made.standings.values()
    accepted = ["Accepted" if not case.errors else "NotKnownToServer"]
    assert [each.reason for each in standing.targets] == accepted
    if case.errors:
        assert [word(judge(made.policies, call(), proof)) for proof in (Proof(), workload(), bearer())] == ["403"] * 3
        assert reach_of(made) == Reach(others=Nobody())


def test_the_same_rules_apply_to_an_mcp_server() -> None:
    assert [errors(compiled(BACKEND, SERVICES, policy(case.rules))) for case in RULES.values()] == [[]] * len(RULES)


# --- How calls are judged


def test_calls_are_judged_without_a_body_and_there_is_no_base_protocol() -> None:
    made = policies(SERVER, policy(rule(SPIFFE, inline("/shop.Orders/*", "/grpc.health.v1.Health/Check"))))
    asked = [call(), call("/grpc.health.v1.Health/Check"), call("/initialize"), call("/shop.OrdersX/Get")]
    assert [word(judge(made, each, workload())) for each in asked] == ["allow", "allow", "403", "403"]


def test_a_denial_has_neither_a_body_nor_its_type() -> None:
    made = policies(SERVER, policy(rule(SPIFFE, inline(GET))))
    decision = judge(made, call(PUT), workload()).decision
    assert isinstance(decision, Deny)
    assert (decision.http_status, decision.headers, decision.body) == (403, (), "")
    made = policies(SERVER, policy(rule(OIDC, inline(GET))))
    decision = judge(made, call()).decision
    assert isinstance(decision, Deny)
    assert (decision.http_status, [name for name, _ in decision.headers], decision.body) == (
        401,
        ["www-authenticate"],
        "",
    )


# --- Whom a server may refuse unasked


def reach_of(made: Compiled) -> Reach:
    return build_reach(made.policies.attachments[PolicyTarget(SHOP)], made.policies.settings.composition)


ONE, TWO, BOTH = Workloads(frozenset({AGENT})), Workloads(frozenset({OTHER})), Workloads(frozenset({AGENT, OTHER}))
REACHES: dict[str, tuple[tuple[str, ...], Reach]] = {
    "everywhere the same": ((policy(rule(SPIFFE, "[{type: Inline, ports: [1]}]")),), Reach(others=ONE)),
    "a rule for everybody": ((policy(anybody("[{type: Inline, ports: [1]}]")),), Reach(others=Anybody())),
    "a ServiceAccount is its id": ((policy(rule(ACCOUNT, "[{type: Inline, ports: [1]}]")),), Reach(others=ONE)),
    "no rules": ((policy(),), Reach(others=Nobody())),
    "a rule that grants nothing": ((policy(rule(SPIFFE, "[]")),), Reach(others=Nobody())),
    "another method than that of gRPC": (
        (policy(rule(SPIFFE, "[{type: Inline, methods: [GET]}]")),),
        Reach(others=Nobody()),
    ),
    "paths and prefixes": (
        (policy(rule(SPIFFE, inline(GET, "/shop.*"))[:-1] + ", " + rule(SPIFFE_OTHER, inline(GET))[1:]),),
        Reach(paths=((GET, BOTH),), prefixes=(("/shop.", ONE),), others=Nobody()),
    ),
    "a path in a prefix": (
        (policy(rule(SPIFFE, inline("/shop.*"))[:-1] + ", " + rule(SPIFFE_OTHER, inline(GET))[1:]),),
        Reach(paths=((GET, BOTH),), prefixes=(("/shop.", ONE),), others=Nobody()),
    ),
    "a prefix in a prefix": (
        (policy(rule(SPIFFE, inline("/shop.*"))[:-1] + ", " + rule(SPIFFE_OTHER, inline("/shop.Orders/*"))[1:]),),
        Reach(prefixes=(("/shop.", ONE), ("/shop.Orders/", BOTH)), others=Nobody()),
    ),
    "an expression may be about every path": (
        (policy(rule(SPIFFE, inline(GET)[:-1] + ", {type: CEL, cel: 'request.path == \"/a.B/C\"'}]")),),
        Reach(others=ONE),
    ),
    "two policies must both grant": (
        (policy(rule(SPIFFE, inline(GET))), policy(rule(SPIFFE_OTHER, inline(PUT)), name="q")),
        Reach(others=Nobody()),
    ),
    "two policies have somebody in common": (
        (
            policy(rule(SPIFFE, inline("/shop.*"))[:-1] + ", " + rule(SPIFFE_OTHER, inline(GET))[1:]),
            policy(rule(SPIFFE, inline(GET)), name="q"),
        ),
        Reach(paths=((GET, ONE),), prefixes=(("/shop.", Nobody()),), others=Nobody()),
    ),
    "of two policies one suffices": (
        (
            configured("{policyComposition: Any}"),
            policy(rule(SPIFFE, inline(GET))),
            policy(rule(SPIFFE_OTHER, inline(PUT)), name="q"),
        ),
        Reach(paths=((GET, ONE), (PUT, TWO)), others=Nobody()),
    ),
    "where tokens could help, the policy server has to say so": (
        (policy(rule(SPIFFE, inline(GET))[:-1] + ", " + rule(OIDC, inline(PUT))[1:]),),
        Reach(paths=((GET, Anybody()), (PUT, Anybody())), others=Nobody()),
    ),
    "tokens of workloads": (
        (
            configured(
                "{issuers: [{url: 'https://issuer.example', jwtSvids: {trustDomain: cluster.local, audiences: [a]}}]}"
            ),
            policy(rule(SPIFFE, inline(GET))),
        ),
        Reach(paths=((GET, Anybody()),), others=Nobody()),
    ),
}


@pytest.mark.parametrize(("documents", "wanted"), REACHES.values(), ids=REACHES.keys())
def test_who_comes_into_question_follows_from_paths_and_certificates(documents: tuple[str, ...], wanted: Reach) -> None:
    assert reach_of(compiled(SERVER, *documents)) == wanted


def test_a_server_is_not_told_of_more_paths_and_ids_than_it_can_look_through() -> None:
    paths = [f"/shop.Orders/Get{index}" for index in range(257)]
    made = compiled(SERVER, policy(rule(SPIFFE, inline(*paths))[:-1] + ", " + rule(SPIFFE_OTHER, inline(GET))[1:]))
    assert reach_of(made) == Reach(others=BOTH)
    workloads = [f"spiffe://example.org/{index}" for index in range(1001)]
    crowd = f"{{type: SPIFFE, spiffe: {workloads}}}"
    assert reach_of(compiled(SERVER, policy(rule(crowd, "[{type: Inline, ports: [1]}]")))) == Reach(others=Anybody())
    some = f"{{type: SPIFFE, spiffe: {workloads[:1000]}}}"
    made = compiled(SERVER, policy(rule(some, inline(*paths[:11]))))
    assert reach_of(made) == Reach(others=Workloads(frozenset(workloads[:1000])))


def test_a_server_gets_a_limited_number_of_paths_and_ids() -> None:
    paths = [f"/shop.Orders/Get{index:03}" for index in range(256)]
    made = compiled(SERVER, policy(rule(SPIFFE, inline(*paths))))
    assert reach_of(made) == Reach(paths=tuple((path, ONE) for path in paths), others=Nobody())
    workloads = frozenset(f"spiffe://example.org/{index}" for index in range(1000))
    crowd = f"{{type: SPIFFE, spiffe: {sorted(workloads)}}}"
    everywhere = compiled(SERVER, policy(rule(crowd, "[{type: Inline, ports: [1]}]")))
    assert reach_of(everywhere) == Reach(others=Workloads(workloads))
    made = compiled(SERVER, policy(rule(crowd, inline(*paths[:10]))))
    assert reach_of(made) == Reach(paths=tuple((path, Workloads(workloads)) for path in paths[:10]), others=Nobody())


def test_a_policy_that_only_calls_an_external_service_excludes_no_caller() -> None:
    screen = policy(kind="XAccessPolicy", more=f"  action: ExternalAuth\n  externalAuth: {external()}")
    made = compiled(SERVER, SERVICES, screen)
    assert (errors(made), reach_of(made)) == ([], Reach(others=Anybody()))


PATTERNS = ("/shop.Orders/Get", "/shop.Orders/*", "/shop.*", "/*", "/shop.Orders/Put", "/other.Service/Do")
CALLS = [call(path, x_a=value) for path in (GET, PUT, "/shop.X/Y", "/other.Service/Do", "/z") for value in ("b", "c")]
PROOFS = (Proof(), workload(), workload(OTHER), bearer(), Proof(ids=(AGENT,), shown=bearer().shown))

_entries = st.one_of(
    st.builds(
        lambda paths, more: f"{{type: Inline, paths: {paths}{more}}}",
        st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3, unique=True),
        st.sampled_from(("", ", methods: [POST]", ", methods: [GET]", ", headers: [{name: x-a, value: b}]")),
    ),
    st.sampled_from(
        (
            "{type: Inline, ports: [50051]}",
            "{type: CEL, cel: 'request.path.startsWith(\"/shop.\")'}",
            "{type: CEL, cel: 'has(identity.sub)'}",
            asks(),
        )
    ),
)
_rules = st.builds(
    lambda source, entries: f"{{{source}authorization: [{', '.join(entries)}]}}",
    st.sampled_from(
        ("", f"source: {SPIFFE}, ", f"source: {SPIFFE_OTHER}, ", f"source: {ACCOUNT}, ", f"source: {OIDC}, ")
    ),
    st.lists(_entries, max_size=2),
)
_policies = st.lists(st.lists(_rules, max_size=3), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(written=_policies, composition=st.sampled_from(("All", "Any")))
def test_no_granted_caller_is_excluded(written: list[list[str]], composition: str) -> None:
    documents = [policy(f"[{', '.join(rules)}]", name=f"p{index}") for index, rules in enumerate(written)]
    made = compiled(SERVER, SERVICES, configured(f"{{policyComposition: {composition}}}"), *documents)
    reach = reach_of(made)
    for asked in CALLS:
        for proof in PROOFS:
            verdict = judge(made.policies, asked, proof, Services(authz=Granted()))
            if word(verdict) == "allow":
                assert is_in_question(callers_of(reach, asked.path), proof), (asked.path, proof, reach)


def callers_of(reach: Reach, path: str) -> Callers:
    """Return who may come into question for a call: by its path, else its longest prefix."""
    fitting = [each for each in reach.prefixes if path.startswith(each[0])]
    longest = max(fitting, key=lambda each: len(each[0]))[1] if fitting else reach.others
    return dict(reach.paths).get(path, longest)


def is_in_question(callers: Callers, proof: Proof) -> bool:
    match callers:
        case Nobody():
            return False
        case Workloads(ids=ids):
            return not ids.isdisjoint(proof.ids)
        case Anybody():
            return True
