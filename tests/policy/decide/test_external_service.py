"""External authorization services: when they are asked, and what their word is worth."""

from typing import Any, NamedTuple

import pytest
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import compiled, policies
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, SPIFFE, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import NOW, Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, LIST, call
from tests.support.policies.names import AGENT, SHOP, THROUGH_EDGE, TO_SHOP

from authplane.authserver.engine.replies import sendable_form
from authplane.core.header_edits import HeaderEdits
from authplane.core.names import ObjectName
from authplane.policy.attached.attachments import Policies
from authplane.policy.check.decision import Allow, Deny
from authplane.policy.decide.decide import decide
from authplane.policy.rules.external_service import ExternalService, OverGrpc, OverHttp
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import Asked
from authplane.policy.verdicts.effects import Ask, Busy, Declined, Granted, NoAnswer, Outcome
from authplane.policy.verdicts.verdict import Verdict

TWO = anybody(f"[{asks()}, {asks('authz2')}]")
ACTION = f"  action: ExternalAuth\n  externalAuth: {external()}"
EDGE_TARGET = "[{kind: Gateway, name: edge}]"


def made(rules: str, *more: str) -> Policies:
    return policies(BACKEND, SERVICES, policy(rules), *more)


ANSWERS: dict[str, tuple[Outcome, Outcome, str, list[str]]] = {
    "the first grants": (Granted(), Declined(), "allow", ["authz"]),
    "the second grants": (Declined(), Granted(), "allow", ["authz", "authz2"]),
    "the second grants after silence": (NoAnswer("timeout"), Granted(), "allow", ["authz", "authz2"]),
    "both decline": (Declined(), Declined(), "403", ["authz", "authz2"]),
    "one declines and one is silent": (Declined(), NoAnswer("timeout"), "unavailable", ["authz", "authz2"]),
    "there is no room": (Busy(), Declined(), "unavailable", ["authz", "authz2"]),
    "a truth value is no answer": (True, Declined(), "unavailable", ["authz", "authz2"]),
}


@pytest.mark.requirement("R35", "R69", "S22")
@pytest.mark.parametrize(("first", "second", "want", "asked"), ANSWERS.values(), ids=ANSWERS.keys())
def test_one_service_that_grants_suffices_and_silence_never_does(
    first: Outcome, second: Outcome, want: str, asked: list[str]
) -> None:
    services = Services(authz=first, authz2=second)
    assert word(judge(made(TWO), ADD_CALL, Proof(), services)) == want
    assert services.names == asked
    assert {each.deadline for each in services.asked} == {NOW.timestamp() + 5}


@pytest.mark.requirement("R27")
def test_rules_without_an_external_service_are_tried_first() -> None:
    services = Services(authz=Granted(HeaderEdits(set=(("x-user", "a"),))))
    rules = f"[{{source: {SPIFFE}, authorization: [{asks()}, {ADD[1:-1]}]}}]"
    granted = judge(made(rules), ADD_CALL, workload(), services)
    assert (word(granted), services.names) == ("allow", [])
    assert isinstance(granted.decision, Allow)
    assert granted.decision.edits.set == ()
    asked = judge(made(rules), call("sub"), workload(), services)
    assert isinstance(asked.decision, Allow)
    assert asked.decision.edits.set == (("x-user", "a"),)
    assert asked.grounds.entry == "0:ExternalAuth"


@pytest.mark.requirement("R27")
def test_only_the_entry_that_grants_may_edit() -> None:
    services = Services(
        authz=Declined(headers=(("x-user", "declined"),)), authz2=Granted(HeaderEdits(set=(("x-user", "granted"),)))
    )
    verdict = judge(made(TWO), ADD_CALL, Proof(), services)
    assert isinstance(verdict.decision, Allow)
    assert verdict.decision.edits.set == (("x-user", "granted"),)


EDITS: dict[str, tuple[HeaderEdits, tuple[tuple[str, str], ...], frozenset[str], frozenset[str]]] = {
    "a header": (HeaderEdits(set=(("X-User", "a"),)), (("x-user", "a"),), frozenset(), frozenset()),
    "the frame of the message": (
        HeaderEdits(set=(("content-length", "1"), (":path", "/x"), ("host", "x"), ("transfer-encoding", "x"))),
        (), frozenset(), frozenset({"content-length", ":path", "host", "transfer-encoding"}),
    ),
    "what it was judged by": (
        HeaderEdits(set=(("content-type", "text/plain"), ("mcp-name", "x")), remove=("Content-Type", "mcp_name")),
        (), frozenset(), frozenset({"content-type", "mcp_name"}),
    ),
    "who the client is": (
        HeaderEdits(set=(("x-forwarded-client-cert", "x"),)), (), frozenset({"x-forwarded-client-cert"}), frozenset()
    ),
    "a value that breaks lines": (
        HeaderEdits(set=(("X-A", "a\r\nb: c"),)), (), frozenset({"x-a"}), frozenset()
    ),
    "a value that is not ASCII": (
        HeaderEdits(set=(("x-user", "a"), ("x-user", "Zo\xeb"))), (), frozenset({"x-user"}), frozenset()
    ),
    "a header to remove": (HeaderEdits(remove=("Cookie",)), (), frozenset({"cookie"}), frozenset()),
    "another token": (
        HeaderEdits(set=(("Authorization", "Bearer new"),)),
        (("authorization", "Bearer new"),), frozenset(), frozenset({"authorization"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "set_", "removed", "kept"), EDITS.values(), ids=EDITS.keys())
def test_a_service_may_edit_what_does_not_make_it_another_request(
    edits: HeaderEdits, set_: tuple[tuple[str, str], ...], removed: frozenset[str], kept: frozenset[str]
) -> None:
    rules = f"[{{source: {OIDC}, authorization: [{asks()}]}}]"
    verdict = judge(made(rules), ADD_CALL, bearer(), Services(authz=Granted(edits)))
    assert isinstance(verdict.decision, Allow)
    assert verdict.decision.edits.set == set_
    gone = frozenset(verdict.decision.edits.remove)
    assert removed <= gone
    assert not kept & gone
    assert ("authorization" in gone) == ("authorization" not in dict(set_))


JUDGED = (
    "accept", "content-encoding", "content-type", "http2-settings", "last-event-id", "mcp-method", "mcp-name",
    "mcp-protocol-version", "mcp-session-id", "origin", "x-http-method", "x-http-method-override", "x-method-override",
)  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_a_service_can_neither_set_nor_remove_what_a_request_was_judged_by(name: str) -> None:
    for spelled in (name, name.upper(), name.replace("-", "_")):
        for edits in (
            HeaderEdits(set=((spelled, "x"), ("x-a", "a"))),
            HeaderEdits(set=(("x-a", "a"),), remove=(spelled,)),
        ):
            verdict = judge(made(anybody(f"[{asks()}]")), ADD_CALL, Proof(), Services(authz=Granted(edits)))
            assert isinstance(verdict.decision, Allow)
            assert verdict.decision.edits.set == (("x-a", "a"),)
            assert spelled.lower() not in verdict.decision.edits.remove


@pytest.mark.requirement("R41")
def test_behind_a_gateway_that_denies_no_service_is_called() -> None:
    guarded = made(anybody(f"[{asks('authz2')}]"), GATEWAY, policy(rule(), name="g", targets=EDGE_TARGET))
    services = Services(authz2=Granted())
    denied = judge(guarded, call("sub"), workload(), services, target=THROUGH_EDGE)
    assert (word(denied), services.names) == ("403", [])
    assert denied.grounds.policy == "AccessPolicy/default/g"
    allowed = judge(guarded, ADD_CALL, workload(), services, target=THROUGH_EDGE)
    assert (word(allowed), services.names) == ("allow", ["authz2"])


def test_a_request_without_a_single_meaning_is_not_worth_asking_about() -> None:
    services = Services(authz=Granted())
    rules = f"[{{authorization: [{asks()}]}}, {rule()[1:]}"
    assert word(judge(made(rules), call(body=b"[]"), Proof(), services)) == "400"
    assert services.names == []


@pytest.mark.requirement("T04")
def test_a_missing_service_grants_nothing_and_other_rules_apply() -> None:
    rules = f"[{{authorization: [{asks()}]}}, {rule()[1:]}"
    gone = compiled(BACKEND, policy(rules)).policies
    assert word(judge(gone, ADD_CALL, workload())) == "allow"
    verdict = judge(gone, call("sub"), workload())
    assert (word(verdict), verdict.grounds.reason) == ("unavailable", "external:BackendNotFound")


@pytest.mark.parametrize(("size", "want"), [(0, "allow"), (1000, "allow"), (10, "413")])
def test_a_body_that_a_service_may_not_be_sent_whole_is_refused(size: int, want: str) -> None:
    forward = external(more=f", forwardBody: {{maxSize: {size}}}")
    rules = anybody(f"[{{type: ExternalAuth, externalAuth: {forward}}}]")
    services = Services(authz=Granted())
    assert word(judge(made(rules), ADD_CALL, Proof(), services)) == want
    assert services.names == ([] if want == "413" else ["authz"])


def test_a_service_learns_what_filters_would_say() -> None:
    services = Services(authz=Granted())
    rules = f"[{{source: {OIDC}, authorization: [{asks()}]}}]"
    judge(made(rules), ADD_CALL, bearer(group="admin"), services)
    metadata = services.asked[0].metadata
    claims: dict[str, Any] = metadata["envoy.filters.http.jwt_authn"]["https://issuer.example"]
    assert claims["group"] == "admin"
    assert metadata["envoy.filters.http.mcp"] == {"method": "tools/call", "params": {"name": "add"}}


SERVICE = ObjectName("default", "authz")
PARSED = {
    "grpc": (external(), ExternalService(service=SERVICE, port=9000, protocol=OverGrpc())),
    "grpc with headers": (
        external(more=", grpc: {allowedHeaders: [X-A]}"),
        ExternalService(service=SERVICE, port=9000, protocol=OverGrpc(request_headers=frozenset({"x-a"}))),
    ),
    "http": (
        external().replace("GRPC", "HTTP"),
        ExternalService(service=SERVICE, port=9000, protocol=OverHttp()),
    ),
    "http with everything": (
        external(
            more=", http: {path: verify/, allowedHeaders: [X-A], allowedResponseHeaders: [X-B]},"
            " forwardBody: {maxSize: 9}"
        ).replace("GRPC", "HTTP"),
        ExternalService(
            service=SERVICE,
            port=9000,
            protocol=OverHttp(path="/verify", request_headers=frozenset({"x-a"}), response_headers=frozenset({"x-b"})),
            most_body=9,
        ),
    ),
}


@pytest.mark.requirement("R67")
@pytest.mark.parametrize(("written", "want"), PARSED.values(), ids=PARSED.keys())
def test_how_a_service_is_called(written: str, want: ExternalService) -> None:
    rules = anybody(f"[{{type: ExternalAuth, externalAuth: {written}}}]")
    attachment = made(rules).attachments[PolicyTarget(SHOP)]
    assert attachment.policies[0].rules[0].entries == (Asked(want),)  # type: ignore[union-attr]


def test_a_flow_that_is_given_up_is_closed() -> None:
    flow = decide(made(TWO), TO_SHOP, ADD_CALL, Proof(), NOW)
    assert not isinstance(flow, Verdict)
    assert isinstance(next(flow), Ask)
    flow.close()


# --- What the service says to the client


OURS = '{"jsonrpc":"2.0","id":7,"error":{"code":-32003,"message":"Access denied."}}'
JSON = ("content-type", "application/json")
BASIC = ("WWW-Authenticate", 'Basic realm="x"')
COOKIES = (("Set-Cookie", "a=1; HttpOnly"), ("Set-Cookie", "b=2"))


class Saying(NamedTuple):
    declined: Declined
    status: int
    headers: tuple[tuple[str, str], ...] = (JSON,)
    body: str = OURS


HTML = ("content-type", "text/html")
SAYINGS = {
    "nothing": Saying(Declined(), 403),
    "a challenge": Saying(Declined(http_status=401, headers=(BASIC,)), 401, (BASIC, JSON)),
    "401 without a challenge": Saying(Declined(http_status=401), 401),
    "where to go": Saying(
        Declined(http_status=302, headers=(("Location", "https://a"), *COOKIES)),
        302,
        (("Location", "https://a"), *COOKIES, JSON),
    ),
    "to wait": Saying(Declined(http_status=429, headers=(("Retry-After", "1"),)), 429, (("Retry-After", "1"), JSON)),
    "its own words": Saying(
        Declined(http_status=404, headers=(HTML, *COOKIES), body="<p>no"), 404, (HTML, *COOKIES), "<p>no"
    ),
    "success": Saying(Declined(http_status=200, headers=COOKIES, body="ok"), 403),
    "nowhere to go": Saying(Declined(http_status=302, headers=COOKIES, body="ok"), 403),
    "a failure": Saying(Declined(http_status=500, headers=COOKIES, body="Traceback"), 403),
    "what cannot be sent": Saying(
        Declined(headers=(("content-length", "1"), (":status", "200"), ("x-a", "a\r\nb: c"), ("te", "x"))), 403
    ),
}


@pytest.mark.requirement("E07")
@pytest.mark.parametrize("saying", SAYINGS.values(), ids=SAYINGS.keys())
def test_a_client_hears_what_the_service_says_about_a_denial(saying: Saying) -> None:
    verdict = judge(made(anybody(f"[{asks()}]")), ADD_CALL, Proof(), Services(authz=saying.declined))
    denied = verdict.decision
    assert isinstance(denied, Deny)
    assert (denied.http_status, denied.headers, denied.body) == (saying.status, saying.headers, saying.body)
    assert sendable_form(denied) is denied


IN_BODY = '{"jsonrpc":"2.0","id":7,"error":{"code":403,"message":"Access to this tool is forbidden."}}'
SAYINGS_IN_BODIES = {
    "a denial": Saying(Declined(headers=(HTML, *COOKIES), body="no"), 200, (*COOKIES, JSON), IN_BODY),
    "a challenge": Saying(Declined(headers=(BASIC,)), 403, (BASIC,), ""),
    "another status": Saying(Declined(http_status=404, headers=(HTML,), body="no"), 404, (HTML,), "no"),
    "a failure": Saying(Declined(http_status=500, headers=COOKIES, body="no"), 200, (JSON,), IN_BODY),
}


@pytest.mark.parametrize("saying", SAYINGS_IN_BODIES.values(), ids=SAYINGS_IN_BODIES.keys())
def test_a_denial_of_a_service_is_in_the_body_like_other_denials(saying: Saying) -> None:
    held = made(anybody(f"[{asks()}]"), settings("{denialFormat: jsonrpc200}"))
    denied = judge(held, ADD_CALL, Proof(), Services(authz=saying.declined)).decision
    assert isinstance(denied, Deny)
    assert (denied.http_status, denied.headers, denied.body) == (saying.status, saying.headers, saying.body)


def test_a_client_gets_the_headers_of_all_who_let_its_request_go_on() -> None:
    rules = policy(anybody(f"[{asks('authz2')}]"), name="a")
    first = Granted(response_headers=(("set-cookie", "a=1"), ("te", "x")))
    second = Granted(response_headers=(("set-cookie", "b=2"), ("x-b", "b\n")))
    verdict = judge(screened("[]", rules), ADD_CALL, Proof(), Services(authz=first, authz2=second))
    assert isinstance(verdict.decision, Allow)
    assert verdict.decision.response_headers == (("set-cookie", "a=1"), ("set-cookie", "b=2"))


@pytest.mark.requirement("E05")
@pytest.mark.parametrize("headers", [(("x-a", "a"),) * 101, (("x-a", "a" * 4000),) * 16], ids=["many", "long"])
def test_more_for_the_client_than_a_proxy_can_carry_is_denied(headers: tuple[tuple[str, str], ...]) -> None:
    for each in (Allow(response_headers=headers), Deny(http_status=401, headers=headers, rule="x")):
        sendable = sendable_form(each)
        assert isinstance(sendable, Deny)
        assert (sendable.http_status, sendable.headers) == (403, ())


# --- Policies of the later kind whose action is to ask


def screened(rules: str = "[]", *more: str) -> Policies:
    return policies(BACKEND, SERVICES, policy(rules, kind="XAccessPolicy", name="s", more=ACTION), *more)


SCREENS: dict[str, tuple[Policies, Proof, Outcome, str, int]] = {
    "nobody selected, so everybody is": (screened(), Proof(), Granted(), "allow", 1),
    "declined": (screened(), Proof(), Declined(), "403", 1),
    "silent": (screened(), Proof(), NoAnswer("x"), "unavailable", 1),
    "selected": (screened(f"[{{source: {SPIFFE}}}]"), workload(), Declined(), "403", 1),
    "not selected": (screened(f"[{{source: {SPIFFE}}}]"), Proof(), Declined(), "allow", 0),
    "an expression that fails selects": (
        screened("[{authorization: {type: CEL, cel: 'identity.x == 1.0'}}]"), Proof(), Declined(), "403", 1
    ),
    "an expression that does not hold": (
        screened("""[{authorization: {type: CEL, cel: 'request.path == "/x"'}}]"""), Proof(), Declined(), "allow", 0
    ),
    "both must allow": (screened("[]", policy(rule(), name="a")), workload(), Granted(), "allow", 1),
    "the other denies": (screened("[]", policy(rule(), name="a")), Proof(), Granted(), "403", 1),
    "it is asked first": (screened("[]", policy(rule(), name="a")), workload(), Declined(), "403", 1),
}  # fmt: skip


@pytest.mark.requirement("I8")
@pytest.mark.parametrize(("held", "proof", "answer", "want", "count"), SCREENS.values(), ids=SCREENS.keys())
def test_an_external_action_is_evaluated_first_and_all_policies_must_allow(
    held: Policies, proof: Proof, answer: Outcome, want: str, count: int
) -> None:
    services = Services(authz=answer)
    assert (word(judge(held, ADD_CALL, proof, services)), len(services.asked)) == (want, count)


@pytest.mark.parametrize("answer", [Granted(), Declined(), NoAnswer("x")], ids=["granted", "declined", "silent"])
def test_the_log_says_that_an_external_action_decided(answer: Outcome) -> None:
    grounds = judge(screened(), ADD_CALL, Proof(), Services(authz=answer)).grounds
    assert (grounds.policy, grounds.entry) == ("XAccessPolicy/default/s", "ExternalAuth")


def test_an_external_action_must_allow_even_where_one_policy_suffices() -> None:
    held = screened("[]", policy(rule(), name="a"), settings("{policyComposition: Any}"))
    assert word(judge(held, ADD_CALL, workload(), Services(authz=Declined()))) == "403"


def test_an_external_action_whose_service_is_gone_denies() -> None:
    gone = compiled(BACKEND, policy(kind="XAccessPolicy", more=ACTION)).policies
    assert word(judge(gone, ADD_CALL, workload())) == "unavailable"


@pytest.mark.requirement("I8")
def test_an_action_and_its_service_belong_together() -> None:
    for more, want in (
        ("  action: ExternalAuth", "Action ExternalAuth requires 'externalAuth'. Add it."),
        (f"  externalAuth: {external()}", "Action Allow cannot have 'externalAuth'. Remove it."),
    ):
        made_ = compiled(BACKEND, SERVICES, policy(rule(), kind="XAccessPolicy", more=more))
        problems = [each.message for found in made_.problems.values() for each in found]
        assert want in problems
        assert word(judge(made_.policies, LIST, workload(AGENT))) == "403"
