"""How the policies before a target are enforced together."""

from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from tests.support.policies.accepted_differences import ACCEPTED_DIFFERENCES
from tests.support.policies.compiled import compiled
from tests.support.policies.documents import (
    ADD,
    BACKEND,
    GATEWAY,
    OIDC,
    SCOPED,
    SPIFFE,
    anybody,
    policy,
    rule,
    settings,
)
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.names import AGENT, ISSUER, SHOP, THROUGH_EDGE, TO_SHOP

from authplane.cel.envoy.envoy_attributes import METHOD
from authplane.cel.envoy.request_checks import PRESENT, Equals, Every, Header, Metadata, every
from authplane.cel.envoy.translate import Condition
from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.placement.entry_placement import ASKS, CHOSEN
from authplane.policy.placement.native_requests import build_front
from authplane.policy.placement.placement_model import (
    CallOut,
    Choices,
    Decider,
    Native,
    Plan,
    Sender,
)
from authplane.policy.placement.placement_plan import (
    ARGUMENTS,
    EXCHANGED,
    SCREENED,
    SEVERAL,
    UNUSABLE,
    place_chain,
)
from authplane.policy.placement.source_placement import NO_KEYS
from authplane.policy.rules.access_settings import Composition, Placement

AUTO: Final = Placement.AUTO
CHOICES: Final = Choices()
EXPLICIT: Final = "v1alpha1"
GROUP: Final = "[{type: CEL, cel: {expression: 'identity.group == \"admin\"'}}]"
GET: Final = "[{type: CEL, cel: {expression: 'request.method == \"GET\"'}}]"
ANY_A: Final = "[{type: CEL, cel: {expression: 'identity.a.exists(x, x == 1.0)'}}]"
EDGE: Final = "[{kind: Gateway, name: edge}]"


def plan(
    *documents: str,
    placement: Placement = AUTO,
    target: RequestTarget = TO_SHOP,
    choices: Choices = CHOICES,
) -> Plan:
    made: Policies = compiled(BACKEND, *documents).policies
    way = made.chain(target)
    assert way is not None
    return place_chain(replace(way, placement=placement), made.settings, choices)


def places(made: Plan) -> list[str]:
    """Return every entry by its key, with the reason why Envoy does not decide it."""
    return [
        f"{placed.key(entry)}{f': {entry.place.reason}' if isinstance(entry.place, CallOut) else ''}"
        for attachment in made.attachments
        for placed in attachment.policies
        for entry in placed.entries
    ]


READS_TO = """[{type: CEL, cel: 'request.mcp.params.to == "a"'}]"""
READS_ALL = """[{type: CEL, cel: 'size(request.mcp.params) == 1'}]"""
READS_INSIDE = """[{type: CEL, cel: 'request.mcp.params.to.name == "a"'}]"""


class Case(NamedTuple):
    documents: tuple[str, ...]
    decider: Decider
    want: list[str]
    placement: Placement = AUTO


CASES: Final = {
    "nothing protects the target": Case((), Decider.NOBODY, []),
    "tools and the base protocol for a workload": Case(
        (policy(rule()),),
        Decider.ENVOY,
        ["default/p/rule-0/0:InlineTools", "default/p/rule-0/base_protocol"],
    ),
    "a claim": Case(
        (policy(rule(OIDC, GROUP)),), Decider.ENVOY, ["default/p/rule-0/0:CEL", "default/p/rule-0/base_protocol"]
    ),
    "everything is the server's if that is chosen": Case(
        (policy(rule()),),
        Decider.SERVER,
        [f"default/p/rule-0/0:InlineTools: {CHOSEN}", f"default/p/rule-0/base_protocol: {CHOSEN}"],
        Placement.CALL_OUT,
    ),
    "a rule that reads an argument beside others": Case(
        (policy(f"[{rule()[1:-1]}, {rule(OIDC, READS_TO)[1:-1]}]"),),
        Decider.ENVOY,
        [
            "default/p/rule-0/0:InlineTools",
            "default/p/rule-0/base_protocol",
            "default/p/rule-1/0:CEL",
            "default/p/rule-1/base_protocol",
        ],
    ),
    "a rule that reads all arguments beside others": Case(
        (policy(f"[{rule()[1:-1]}, {rule(OIDC, READS_ALL)[1:-1]}]"),),
        Decider.SERVER,
        [
            f"default/p/rule-0/0:InlineTools: {ARGUMENTS}",
            f"default/p/rule-0/base_protocol: {ARGUMENTS}",
            "default/p/rule-1/0:CEL: reads all tool arguments instead of one by name",
            f"default/p/rule-1/base_protocol: {ARGUMENTS}",
        ],
    ),
    "a rule that reads a member of an argument beside others": Case(
        (policy(f"[{rule()[1:-1]}, {rule(OIDC, READS_INSIDE)[1:-1]}]"),),
        Decider.BOTH,
        [
            "default/p/rule-0/0:InlineTools",
            "default/p/rule-0/base_protocol",
            "default/p/rule-1/0:CEL: reads request.mcp.params.to.name, which is a member of an argument",
            "default/p/rule-1/base_protocol",
        ],
    ),
    "a loop among native rules": Case(
        (policy(f"[{rule(OIDC, GROUP)[1:-1]}, {rule(OIDC, ANY_A)[1:-1]}]"),),
        Decider.BOTH,
        [
            "default/p/rule-0/0:CEL",
            "default/p/rule-0/base_protocol",
            "default/p/rule-1/0:CEL: uses exists()",
            "default/p/rule-1/base_protocol",
        ],
    ),
    "an external service": Case(
        (SERVICES, policy(rule(SPIFFE, f"[{asks()}]"))),
        Decider.BOTH,
        [f"default/p/rule-0/0:ExternalAuth: {ASKS}", "default/p/rule-0/base_protocol"],
    ),
    "several external services": Case(
        (SERVICES, policy(rule(SPIFFE, f"[{asks()}, {asks('authz2')}]"))),
        Decider.BOTH,
        [
            f"default/p/rule-0/0:ExternalAuth: {SEVERAL}",
            f"default/p/rule-0/1:ExternalAuth: {SEVERAL}",
            "default/p/rule-0/base_protocol",
        ],
    ),
    "an external service beside tokens, of which it may make others": Case(
        (SERVICES, policy(f"[{rule(OIDC, GROUP)[1:-1]}, {rule(SPIFFE, f'[{asks()}]')[1:-1]}]")),
        Decider.SERVER,
        [
            f"default/p/rule-0/0:CEL: {EXCHANGED}",
            f"default/p/rule-0/base_protocol: {EXCHANGED}",
            f"default/p/rule-1/0:ExternalAuth: {ASKS}",
            f"default/p/rule-1/base_protocol: {EXCHANGED}",
        ],
    ),
    "a policy with a mistake is left to the server, which may know how it was before": Case(
        (policy(rule(SPIFFE, "[{type: CEL, cel: {expression: 'nope'}}]")), policy(rule(), name="q")),
        Decider.SERVER,
        [f"default/q/rule-0/0:InlineTools: {UNUSABLE}", f"default/q/rule-0/base_protocol: {UNUSABLE}"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_policies_have_a_plan(case: Case) -> None:
    made = plan(*case.documents, placement=case.placement)
    assert (places(made), made.decider) == (case.want, case.decider)


def test_tokens_are_the_servers_to_judge_until_envoy_can_be_given_keys() -> None:
    made = plan(policy(rule(OIDC, GROUP)), choices=Choices(keys=frozenset({"https://other.example"})))
    assert (places(made), made.decider) == (
        [f"default/p/rule-0/0:CEL: {NO_KEYS}", f"default/p/rule-0/base_protocol: {NO_KEYS}"],
        Decider.SERVER,
    )


def test_a_policy_without_rules_denies_natively() -> None:
    made = plan(policy("[]"))
    assert [placed.entries for attachment in made.attachments for placed in attachment.policies] == [()]
    assert made.decider is Decider.ENVOY


def test_an_unusable_policy_is_required_where_one_policy_suffices() -> None:
    broken = policy(rule(SPIFFE, "[{type: CEL, cel: {expression: 'nope'}}]"))
    made = plan(settings("{policyComposition: Any}"), broken, policy(rule(), name="q"))
    [attachment] = made.attachments
    assert attachment.composition is Composition.ANY
    assert [(placed.ref.name, placed.required) for placed in attachment.policies] == [("p", True), ("q", False)]


def test_policies_of_the_gateway_come_before_those_of_the_backend() -> None:
    made = plan(GATEWAY, policy(anybody(GET), name="g", targets=EDGE), policy(rule()), target=THROUGH_EDGE)
    assert [[placed.ref.name for placed in attachment.policies] for attachment in made.attachments] == [["g"], ["p"]]


def test_a_policy_that_asks_about_requests_leaves_its_target_to_the_server() -> None:
    screen = policy("[]", name="s", kind="XAccessPolicy", more=f"  action: ExternalAuth\n  externalAuth: {external()}")
    made = plan(SERVICES, screen, policy(rule()))
    assert made.decider is Decider.SERVER
    assert places(made) == [
        f"default/s//ExternalAuth: {ASKS}",
        f"default/p/rule-0/0:InlineTools: {SCREENED}",
        f"default/p/rule-0/base_protocol: {SCREENED}",
    ]


def test_only_messages_that_the_reader_calls_plain_are_judged_by_envoy() -> None:
    assert plan(policy(rule())).front == Condition(check=Metadata(METHOD, (PRESENT,)), reads_mcp=True)
    assert build_front(is_mcp=False, reads_mcp=False).always


def test_the_reader_keeps_the_arguments_that_rules_read() -> None:
    assert plan(policy(rule(OIDC, READS_TO))).arguments == ("to",)
    assert plan(policy(rule())).arguments == ()


def test_denials_that_name_scopes_or_say_something_need_the_server() -> None:
    said = "[{type: CEL, cel: {expression: 'identity.group == \"admin\"', message: ask the admins}}]"
    assert [plan(policy(rules)).worded for rules in (rule(OIDC, ADD), rule(SCOPED, ADD), rule(OIDC, said))] == [
        False,
        True,
        True,
    ]


def test_who_is_granted_nothing_by_a_rule_is_told_so_by_the_server_where_others_need_a_token() -> None:
    nothing = "[]"
    cases = (
        (rule(OIDC, ADD), rule(SPIFFE, nothing)),
        (rule(OIDC, ADD), f"[{{authorization: {nothing}}}]"),
        (rule(SPIFFE, ADD), rule(SPIFFE, nothing)),
    )
    made = [plan(policy(f"[{one[1:-1]}, {other[1:-1]}]")).worded for one, other in cases]
    assert made == [True, False, False]


def test_an_entry_is_granted_to_its_sender_alone_and_others_are_not_asked_about() -> None:
    made = plan(policy(f"[{rule()[1:-1]}, {rule(OIDC, GROUP)[1:-1]}, {rule(SPIFFE, ANY_A)[1:-1]}]"))
    [attachment] = made.attachments
    [placed] = attachment.policies
    assert placed.ref.namespace == SHOP.namespace
    tools, _, group, _, asked, _ = placed.entries
    granted = tools.granted()
    assert granted is not None
    assert isinstance(tools.place, Native)
    assert isinstance(tools.sender, Sender)
    checks = every((tools.place.condition.check, tools.sender.condition.check))
    assert granted == Condition(check=checks, reads_mcp=True)
    assert asked.granted() is None
    assert isinstance(asked.sender, Sender)
    assert asked.reached() == (asked.sender.condition, frozenset({AGENT}))
    assert group.reached() == (Condition(check=Header("authorization", PRESENT)), frozenset())
    claims = group.granted()
    assert claims is not None
    assert isinstance(claims.check, Every)
    assert Metadata(("envoy.filters.http.jwt_authn", ISSUER, "group"), (Equals("admin"),)) in claims.check.checks


def test_every_known_difference_has_its_reason() -> None:
    assert all(each.what and each.why for each in ACCEPTED_DIFFERENCES)
    assert len({each.key for each in ACCEPTED_DIFFERENCES}) == len(ACCEPTED_DIFFERENCES)
