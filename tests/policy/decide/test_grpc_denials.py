"""What the client of a gRPC server hears: the details of the status say why, and name the decision."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, OIDC, SCOPED, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import Services, judge

from authplane.authserver.engine.replies import Replies
from authplane.dataplane.filters.extauthz.check_messages.wire import read_reply
from authplane.dataplane.filters.extauthz.service_decision import Deny
from authplane.dataplane.filters.headers import Rules
from authplane.policy.check.decision_id import decision_id
from authplane.policy.check.request import Peer, Request
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.verdicts.effects import Declined

SERVER = BACKEND.replace("{type: MCP, mcp: {serviceName: shop, port: 80}}", "{type: GRPC, grpc: {port: 50051}}")
CALL = Request(
    method="POST",
    path="/shop.Orders/Put",
    source=Peer(address="10.0.0.1", port=4711),
    destination=Peer(port=50051),
    time=datetime(2026, 1, 1, tzinfo=UTC),
)
LIST = "[{type: Inline, paths: [/shop.Orders/List]}]"
TOLD = "[{type: CEL, cel: {expression: 'request.path == \"/a\"', message: 'Only managers may put orders.'}}]"


class Case(NamedTuple):
    rules: str
    proof: Proof
    said: str


CASES = {
    "not granted": Case(rule(authorization=LIST), workload(), "Access denied."),
    "the author's message": Case(rule(authorization=TOLD), workload(), "Only managers may put orders."),
    "no token": Case(rule(OIDC, LIST), Proof(), "Authentication required. Send a bearer token."),
    "a token of another audience": Case(
        rule(OIDC, LIST),
        bearer(aud="other"),
        'The token is for audience "other". Use a token whose audience is "shop".',
    ),
    "a scope": Case(
        rule(SCOPED, "[{type: Inline, methods: [POST]}]"),
        bearer(scope="other"),
        'Insufficient scope. Get a token with the scope "tools admin".',
    ),
    "too many": Case(
        rule(OIDC, LIST),
        Proof(shown=Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=3)),
        "Too many invalid tokens from this address. Retry in 3 s.",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_details_say_why_and_name_the_decision(case: Case) -> None:
    decision = judge(policies(SERVER, policy(case.rules)), CALL, case.proof).decision
    kept = Replies()
    denied = read_reply(kept.find(decision).body, Rules())
    assert isinstance(denied, Deny)
    assert denied.message == f"denied by the authorization service: {case.said} (decision id {decision_id(CALL)})"
    # What names one call is not kept for others.
    assert len(kept) == 0


def test_the_body_of_an_external_service_stays_out_of_the_details() -> None:
    services = Services(authz=Declined(http_status=403, body="<html>"))
    made = policies(SERVER, SERVICES, policy(rule(authorization=f"[{asks()}]")))
    denied = read_reply(Replies().find(judge(made, CALL, workload(), services).decision).body, Rules())
    assert isinstance(denied, Deny)
    assert denied.message == f"denied by the authorization service: Access denied. (decision id {decision_id(CALL)})"


def test_calls_that_differ_have_ids_that_differ() -> None:
    assert CALL.time is not None
    others = (
        replace(CALL, time=CALL.time + timedelta(microseconds=1)),
        replace(CALL, source=Peer(address="10.0.0.1", port=4712)),
        replace(CALL, path="/shop.Orders/List"),
    )
    ids = [decision_id(each) for each in (CALL, *others)]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert decision_id(CALL) == ids[0]


def test_an_id_that_was_sent_is_kept() -> None:
    assert decision_id(replace(CALL, id="by-envoy")) == "by-envoy"
    assert decision_id(replace(CALL, headers=(("x-request-id", "mine"),))) == "mine"
    # Without a time, nothing tells two calls of a client apart.
    assert not decision_id(replace(CALL, time=None))
