"""What is remembered never differs from what would be decided anew."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, SPIFFE, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import NOW, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, LIST, call, request
from tests.support.policies.names import AGENT, EDGE, OTHER, SHOP, TO_SHOP

from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.check.decision import Allow
from authplane.policy.check.request import Request
from authplane.policy.decide.decide import decide
from authplane.policy.verdicts.allowed_memory import Proof as Decisive
from authplane.policy.verdicts.verdict import Verdict

CEL_TOOL = '[{type: CEL, cel: \'request.mcp.tool_name.startsWith("a") && identity.group == "admin"\'}]'
CEL_PARAMS = "[{type: CEL, cel: 'has(request.mcp.params.a) && request.mcp.params.a > 1.0'}]"
CEL_HEADER = "[{type: CEL, cel: '\"x-team\" in request.headers'}]"
RULES = {
    "tools for a workload": rule(SPIFFE, ADD),
    "tools for a token": rule(OIDC, ADD),
    "an expression on tool and claims": rule(OIDC, CEL_TOOL),
    "an expression on arguments": rule(SPIFFE, CEL_PARAMS),
    "an expression on headers": anybody(CEL_HEADER),
    "tools for everybody": anybody(ADD),
    "workloads and tokens": f"{rule()[:-1]}, {rule(OIDC)[1:]}",
    "a service": anybody(f"[{asks()}]"),
}
NARROW = {
    "tools for a workload": Decisive.CERTIFICATE,
    "tools for a token": Decisive.TOKEN,
    "an expression on tool and claims": Decisive.TOKEN,
    "tools for everybody": Decisive.NOTHING,
}

REQUESTS = st.one_of(
    st.sampled_from([INITIALIZE, LIST, ADD_CALL, call("wipe"), call("add", {"a": 2}), call("add", {"a": 0})]),
    st.sampled_from(
        [
            call("add", headers=[("x_team", "red")]),
            call("add", headers=[("x-team", "red")]),
            call("add", headers=[("x-envoy-auth-partial-body", "true")]),
            request("tools/list", headers=[("mcp-protocol-version", "2025-11-25")]),
            request("server/discover", headers=[("mcp-protocol-version", "2025-11-25")]),
            request("resources/list"),
            request("notifications/initialized", id=None),
        ]
    ),
)
ADMIN, STAFF = bearer(group="admin"), bearer(group="staff")
PROOFS = st.sampled_from([Proof(), workload(), workload(OTHER), workload(AGENT, OTHER), ADMIN, STAFF, bearer(aud="x")])
MADE: dict[str, Policies] = {}


def made(name: str) -> Policies:
    """Keep policies from one example to the next: what was remembered then counts now."""
    if name not in MADE:
        MADE[name] = policies(BACKEND, SERVICES, policy(RULES[name]))
    return MADE[name]


@pytest.mark.slow
@settings(max_examples=200)
@given(st.sampled_from(sorted(RULES)), st.lists(st.tuples(REQUESTS, PROOFS), min_size=1, max_size=8))
def test_a_remembered_verdict_is_what_would_be_decided_anew(name: str, asked: list[tuple[Request, Proof]]) -> None:
    # Another one of the same has an empty memory.
    fresh = [judge(replace(made(name)), each, proof) for each, proof in asked]
    assert [judge(made(name), each, proof) for each, proof in asked] == fresh


@pytest.mark.parametrize("name", RULES)
def test_only_what_depends_on_sender_and_tool_alone_is_remembered(name: str) -> None:
    way = policies(BACKEND, SERVICES, policy(RULES[name])).chain(TO_SHOP)
    assert way is not None
    assert way.proof is NARROW.get(name)


def test_the_same_question_is_decided_once_by_all_policies_on_the_way() -> None:
    gateway = policy(rule(), name="g", targets="[{kind: Gateway, name: edge}]")
    known = policies(BACKEND, GATEWAY, policy(rule()), gateway)
    target = RequestTarget(backend=SHOP, gateway=EDGE)

    def verdict(asked: Request, **more: Any) -> Verdict:
        found = decide(known, target, asked, workload(), NOW, **more)
        assert isinstance(found, Verdict)
        return found

    first = verdict(ADD_CALL)
    assert isinstance(first.decision, Allow)
    assert verdict(call("add", {"a": 9}, id="other")) is first
    assert verdict(call("wipe")) is not verdict(call("wipe"))


def test_another_token_of_the_same_person_is_another_question() -> None:
    known = policies(BACKEND, policy(rule(OIDC, CEL_TOOL)))
    assert isinstance(judge(known, ADD_CALL, bearer(group="admin")).decision, Allow)
    assert not isinstance(judge(known, ADD_CALL, bearer(group="staff")).decision, Allow)
    assert isinstance(judge(known, ADD_CALL, bearer(group="admin")).decision, Allow)


def test_many_tools_do_not_fill_the_memory() -> None:
    known = policies(BACKEND, policy(anybody("[{type: CEL, cel: 'request.mcp.tool_name != \"\"'}]")))
    for number in range(3000):
        judge(known, call(f"tool-{number}"))
    way = known.chain(TO_SHOP)
    assert way is not None
    assert len(way.memory._allowed) <= 1024


def test_a_header_that_mixes_spellings_is_taken_out_of_a_request_that_was_allowed_before() -> None:
    held = policies(BACKEND, policy(rule()))
    assert "x-remote_user" not in _removed(held, ADD_CALL)
    assert "x-remote_user" in _removed(held, call(headers=[("x-remote_user", "admin")]))


def _removed(held: Policies, asked: Request) -> tuple[str, ...]:
    allowed = judge(held, asked, workload()).decision
    assert isinstance(allowed, Allow)
    return allowed.edits.remove


def test_what_was_allowed_in_one_version_of_the_protocol_is_judged_anew_in_another() -> None:
    held = policies(BACKEND, policy(rule()))
    newer = "2026-07-28"
    headers = [("mcp-protocol-version", newer), ("mcp-method", "ping")]
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": newer}}
    assert isinstance(judge(held, request("ping"), workload()).decision, Allow)
    assert word(judge(held, request("ping", meta, headers=headers), workload())) == "403"
