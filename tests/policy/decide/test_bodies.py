"""A rule about the body is satisfied by the whole body or not at all."""

from dataclasses import replace

import pytest
from tests.support.policies.callers import workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, external
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE

from authplane.policy.verdicts.effects import Granted

RULES = {
    "tools": rule(),
    "an expression": rule(authorization="[{type: CEL, cel: 'request.mcp.method == \"tools/call\"'}]"),
    "a service that gets the body": anybody(
        f"[{{type: ExternalAuth, externalAuth: {external(more=', forwardBody: {maxSize: 60000}')}}}]"
    ),
}
LENGTH = len(ADD_CALL.body)
PARTS = {
    "Envoy says that it is a part": (("x-envoy-auth-partial-body", "true"), LENGTH),
    "Envoy says something else than false": (("x-envoy-auth-partial-body", "0"), LENGTH),
    "it is shorter than the request says": (("content-length", str(LENGTH + 1)), LENGTH),
    "it is longer than the request says": (("content-length", str(LENGTH - 1)), LENGTH),
    "its length is spelled in another way": (("content-length", f"+{LENGTH}"), LENGTH),
    "it is missing": (("content-length", str(LENGTH)), 0),
}


@pytest.mark.requirement("E19")
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize(("header", "kept"), PARTS.values(), ids=PARTS.keys())
def test_a_part_of_a_body_satisfies_nothing(rules: str, header: tuple[str, str], kept: int) -> None:
    made = policies(BACKEND, SERVICES, policy(rules))
    services = Services(authz=Granted())
    whole = replace(ADD_CALL, headers=(*ADD_CALL.headers, ("content-length", str(LENGTH))))
    assert word(judge(made, whole, workload(), services)) == "allow"
    services.asked.clear()
    part = replace(ADD_CALL, headers=(*ADD_CALL.headers, header), body=ADD_CALL.body[:kept])
    assert word(judge(made, part, workload(), services)) == "413"
    assert services.asked == []


def test_a_part_of_a_message_is_not_of_the_base_protocol() -> None:
    made = policies(BACKEND, policy(rule()))
    part = replace(INITIALIZE, headers=(*INITIALIZE.headers, ("x-envoy-auth-partial-body", "true")))
    assert word(judge(made, INITIALIZE, workload())) == "allow"
    assert word(judge(made, part, workload())) == "413"


UPGRADES = {
    "a header": ("upgrade", "websocket"),
    "settings of HTTP/2": ("http2-settings", "AAMAAABkAAQAAP__"),
    "the protocol of a CONNECT": (":protocol", "websocket"),
}
EVERYTHING = {
    "an expression that reads no body": anybody("[{type: CEL, cel: 'request.method == \"POST\"'}]"),
    "no authorization": "[{}]",
}


@pytest.mark.requirement("E21")
@pytest.mark.parametrize("rules", EVERYTHING.values(), ids=EVERYTHING.keys())
@pytest.mark.parametrize("header", UPGRADES.values(), ids=UPGRADES.keys())
def test_an_upgrade_to_an_mcp_server_is_refused_where_no_rule_reads_the_body(
    rules: str, header: tuple[str, str]
) -> None:
    held = policies(BACKEND, policy(rules, kind="XAccessPolicy"))
    assert word(judge(held, ADD_CALL)) == "allow"
    assert word(judge(held, replace(ADD_CALL, headers=(*ADD_CALL.headers, header)))) == "400"
