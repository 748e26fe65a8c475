"""Whatever stands in shadow: nothing changes but what is said of it, and that is what it would do."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import compiled, load
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, SCOPED, anybody, policy, rule
from tests.support.policies.documents import settings as configured
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, LIST, call
from tests.support.policies.names import AGENT, OTHER, THROUGH_EDGE, TO_SHOP

from authplane.controlplane.graph.gateway.protection import read_protection
from authplane.controlplane.status.access_policy_status import build_ancestors
from authplane.devkit.policies.checking import Circumstances, check
from authplane.devkit.policies.request_files import AskedRequest, AssumedToken
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import Compiled
from authplane.policy.decide.decide import EXPLAINING, MEANS
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.verdicts.effects import Declined, Granted, NoAnswer, Outcome
from authplane.policy.verdicts.verdict import Verdict, Would

FAR = "{type: SPIFFE, spiffe: 'spiffe://far.example/a'}"
OTHER_OIDC = OIDC.replace("issuer.example", "other.example")
BARE_OIDC = OIDC.replace("https://issuer.example", "issuer.example")
RULES = {
    "agents may add": rule(),
    "tokens may add": rule(OIDC),
    "tokens of another issuer may": rule(OTHER_OIDC),
    "tokens of an issuer without a scheme may": rule(BARE_OIDC),
    "tokens with a scope may": rule(SCOPED),
    "workloads of another domain may": rule(FAR),
    "accounts may": rule("{type: ServiceAccount, serviceAccount: {name: agent}}"),
    "everybody may": anybody(ADD),
    "everybody may come here": anybody("[{type: Inline, paths: [/mcp]}]"),
    "arguments count": rule(authorization="[{type: CEL, cel: 'request.mcp.params.a > 1.0'}]"),
    "claims count": rule(OIDC, "[{type: CEL, cel: 'identity.group == \"a\"'}]"),
    "agents may add, or a service says so": rule(authorization=f"[{asks()}, {ADD[1:-1]}]"),
    "a service decides": anybody(f"[{asks()}]"),
    "nobody may": "[]",
    "two": f"{rule()[:-1]}, {rule(OIDC)[1:]}",
}
MISTAKES = {
    "an expression": anybody("[{type: CEL, cel: 'x ='}]"),
    "two of one name": "[{name: a}, {name: a}]",
    "a source": rule("{type: SPIFFE}"),
}
WHOLE = {**RULES, **MISTAKES}
KINDS = (("AccessPolicy", "v1alpha1"), ("XAccessPolicy", "v0alpha0"))
LATER = ("XAccessPolicy", "v1alpha1")
AIMS = {
    "the backend": "[{kind: Backend, name: shop}]",
    "the Gateway": "[{kind: Gateway, name: edge}]",
    "a listener": "[{kind: Gateway, name: edge, sectionName: web}]",
}
MORE_AIMS = {**AIMS, "no listener": "[{kind: Gateway, name: edge, sectionName: x}]", "a Pod": "[{kind: Pod, name: x}]"}
SCREEN = f"  action: ExternalAuth\n  externalAuth: {external('authz2')}"
SETTINGS = {
    "the usual": "{}",
    "any policy suffices": "{policyComposition: Any}",
    "closed": "{unprotectedBackends: Deny}",
    "denials in bodies": "{denialFormat: jsonrpc200}",
    "tokens of workloads": "{issuers: [{url: 'https://other.example', jwtSvids: {trustDomain: far.example,"
    " audiences: [shop]}}]}",
}
REQUESTS = {
    "add": ADD_CALL,
    "sub": call("sub"),
    "an argument": call("add", {"a": 2}),
    "initialize": INITIALIZE,
    "list": LIST,
    "batch": call(body=b"[]"),
    "an upgrade": call(headers=(("upgrade", "websocket"),)),
    "a spoofed identity": call(headers=(("x-forwarded-client-cert", "x"), ("x_forwarded_for", "y"))),
}
PROOFS: dict[str, Proof] = {
    "nobody": Proof(),
    "agent": workload(),
    "another": workload(OTHER),
    "both": Proof(ids=(AGENT,), shown=bearer().shown),
    "token": bearer(scope="tools"),
    "token for others": bearer(aud="x"),
    "token of another issuer": bearer("https://other.example"),
    "keys not there": Proof(shown=Refused(reason=Reason.ISSUER_NOT_READY, issuer="https://issuer.example")),
}
ANSWERS: dict[str, Outcome] = {"grants": Granted(), "declines": Declined(http_status=402), "silent": NoAnswer("x")}
WAYS = {
    "to the backend": TO_SHOP,
    "through the Gateway": THROUGH_EDGE,
    "through a listener": RequestTarget(backend=TO_SHOP.backend, gateway=THROUGH_EDGE.gateway, section="web"),
}


class Draw(NamedTuple):
    """A policy, but for its name and its mode."""

    rules: str
    aim: str
    kind: tuple[str, str] = KINDS[0]
    year: int = 2020
    more: str = ""

    def text(self, name: str, mode: str) -> str:
        return policy(
            self.rules,
            name=name,
            targets=self.aim,
            kind=self.kind[0],
            version=self.kind[1],
            created=f"{self.year}-01-01T00:00:00Z",
            more=f"  mode: {mode}\n{self.more}",
        )


years = st.integers(2000, 2030)


def sets(mode: str, names: str, rules: Mapping[str, str], aims: Mapping[str, str]) -> st.SearchStrategy[list[str]]:
    """Return policies of some names and all ages; perhaps one of them leaves everything to an external service."""
    of_rules, of_aims = st.sampled_from(list(rules.values())), st.sampled_from(list(aims.values()))
    plain = st.builds(Draw, of_rules, of_aims, st.sampled_from(KINDS), years, st.just(""))
    screen = st.builds(Draw, st.just("[]"), of_aims, st.just(LATER), years, st.just(SCREEN))
    drawn = st.tuples(st.lists(plain, max_size=len(names) - 1), st.lists(screen, max_size=1))
    return drawn.map(
        lambda found: [each.text(name, mode) for name, each in zip(names, found[0] + found[1], strict=False)]
    )


enforced_sets = sets("Enforce", "abcdefg", RULES, AIMS)
shadow_sets = sets("Shadow", "stuvwxyz", WHOLE, MORE_AIMS)


def services(answer: str) -> Services:
    return Services(authz=ANSWERS[answer], authz2=ANSWERS[answer])


def statuses(made: Compiled) -> dict[str, object]:
    return {
        str(ref): (build_ancestors(standing), made.problems.get(ref))
        for ref, standing in made.standings.items()
        if not standing.shadow
    }


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    enforced=enforced_sets,
    shadows=shadow_sets,
    setting=st.sampled_from(sorted(SETTINGS)),
    asked=st.sampled_from(sorted(REQUESTS)),
    proof=st.sampled_from(sorted(PROOFS)),
    answer=st.sampled_from(sorted(ANSWERS)),
    way=st.sampled_from(sorted(WAYS)),
)
def test_policies_in_shadow_change_nothing(  # noqa: PLR0913, PLR0917 (all that a decision takes)
    enforced: list[str], shadows: list[str], setting: str, asked: str, proof: str, answer: str, way: str
) -> None:
    world = (BACKEND, GATEWAY, SERVICES, configured(SETTINGS[setting]))
    before, after = compiled(*world, *enforced), compiled(*world, *enforced, *shadows)
    told = [
        (
            [
                judge(made.policies, REQUESTS[asked], PROOFS[proof], heard, target=WAYS[way], means=means)
                for means in (MEANS, EXPLAINING)
                for _ in range(2)
            ],
            heard.names,
        )
        for made in (before, after)
        for heard in (services(answer),)
    ]
    plain, shadowed = told
    assert [each._replace(shadows=()) for each in shadowed[0]] == plain[0]
    assert shadowed[1] == plain[1]
    assert statuses(after) == statuses(before)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(enforced=enforced_sets, shadows=shadow_sets)
def test_policies_in_shadow_protect_nothing_and_ask_for_no_tokens(enforced: list[str], shadows: list[str]) -> None:
    before, after = (
        read_protection(load(BACKEND, GATEWAY, SERVICES, *enforced, *more).resources) for more in ([], shadows)
    )
    assert (after.backends, after.listeners, after.namespaces) == (before.backends, before.listeners, before.namespaces)


@pytest.mark.parametrize("kind", KINDS, ids="/".join)
@pytest.mark.parametrize("rules", WHOLE.values(), ids=WHOLE.keys())
def test_what_is_said_of_a_policy_in_shadow_is_what_it_would_decide_alone(rules: str, kind: tuple[str, str]) -> None:
    drawn = Draw(rules, AIMS["the backend"], kind)
    tried, enforced = (compiled(BACKEND, SERVICES, drawn.text("p", mode)).policies for mode in ("Shadow", "Enforce"))
    for request in REQUESTS.values():
        for proof in PROOFS.values():
            heard = Services()
            wanted = judge(enforced, request, proof, heard)
            [found] = judge(tried, request, proof).shadows
            assert (found.would, found.rule, found.reason) == expected(wanted, asked=bool(heard.asked))


def expected(verdict: Verdict, *, asked: bool) -> tuple[Would, str, str]:
    if asked:
        return Would.UNKNOWN, "", "external:not_asked"
    would = {"allow": Would.ALLOW, "unavailable": Would.UNKNOWN}.get(word(verdict), Would.DENY)
    return would, verdict.grounds.rule, verdict.grounds.reason


CLAIMED = {
    "nobody": None,
    "known": "https://issuer.example",
    "only in shadow": "https://other.example",
    "without a scheme": "issuer.example",
    "unknown": "https://unknown.example",
}
PEERS = {"nobody": "", "agent": AGENT, "far": "spiffe://far.example/a"}


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    enforced=enforced_sets,
    shadows=shadow_sets,
    setting=st.sampled_from(sorted(SETTINGS)),
    issuer=st.sampled_from(sorted(CLAIMED)),
    peer=st.sampled_from(sorted(PEERS)),
)
def test_what_proves_something_to_policies_in_shadow_proves_no_more_to_others(
    enforced: list[str], shadows: list[str], setting: str, issuer: str, peer: str
) -> None:
    asked = shown(CLAIMED[issuer], PEERS[peer])
    given_ = Circumstances(now=datetime(2026, 1, 1, tzinfo=UTC), answer=lambda _: Granted())
    world = (BACKEND, GATEWAY, SERVICES, configured(SETTINGS[setting]), *enforced)
    before, after = (check(compiled(*world, *more).policies, asked, given_) for more in ([], shadows))
    assert after.verdict._replace(shadows=()) == before.verdict


def shown(issuer: str | None, peer: str) -> AskedRequest:
    claims = {"sub": PEERS["far"], "aud": "shop", "group": "a", "scope": "tools"}
    token = None if issuer is None else AssumedToken(issuer=issuer, claims=claims)
    return AskedRequest(request=ADD_CALL, target=THROUGH_EDGE, spiffe_id=peer, token=token)
