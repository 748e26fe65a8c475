"""How policies are taken together, against a small model that knows nothing of the code."""

from dataclasses import dataclass
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policies.callers import workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, GATEWAY, policy, rule
from tests.support.policies.documents import settings as configured
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, LIST, call
from tests.support.policies.names import AGENT, EDGE, OTHER, SHOP, THROUGH_EDGE

from authplane.cel.check.program import Program, compile_expression
from authplane.cel.syntax.vocabulary import ACCESS_POLICY
from authplane.core.names import ObjectName, Ref
from authplane.policy.attached.attachments import Policies, build_attachment
from authplane.policy.rules.access_settings import Composition, Settings
from authplane.policy.rules.external_service import ExternalService, OverGrpc
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import (
    AnyPolicy,
    AnySource,
    Asked,
    Entry,
    Expression,
    Policy,
    Rule,
    Source,
    Spiffe,
    Tools,
    Unusable,
)
from authplane.policy.verdicts.effects import Declined, Granted, NoAnswer, Outcome


def program(text: str) -> Program:
    made = compile_expression(text, ACCESS_POLICY)
    assert isinstance(made, Program)
    return made


def service(name: str) -> Asked:
    return Asked(ExternalService(service=ObjectName("default", name), port=1, protocol=OverGrpc()))


ENTRIES: dict[str, Entry] = {
    "tool": Tools(frozenset({"add"})),
    "other": Tools(frozenset({"sub"})),
    "true": Expression(program=program('request.path == "/mcp"')),
    "false": Expression(program=program('request.path == "/x"')),
    "error": Expression(program=program("identity.nothing == 1.0")),
    "yes": service("yes"),
    "no": service("no"),
    "silent": service("silent"),
}
ANSWERS: dict[str, Outcome] = {"yes": Granted(), "no": Declined(), "silent": NoAnswer("x")}
SOURCES: dict[str, Source] = {
    "agent": Spiffe(frozenset({AGENT})),
    "other": Spiffe(frozenset({OTHER})),
    "any": AnySource(),
}


@dataclass(frozen=True)
class Drawn:
    """A policy as it was drawn: rules of a source and entries; None cannot be used."""

    rules: tuple[tuple[str, tuple[str, ...]], ...] | None


drawn_rules = st.tuples(
    st.sampled_from(sorted(SOURCES)), st.lists(st.sampled_from(sorted(ENTRIES)), max_size=3).map(tuple)
)
drawn = st.one_of(*[st.lists(drawn_rules, max_size=3).map(lambda rules: Drawn(tuple(rules)))] * 9, st.just(Drawn(None)))
levels = st.lists(drawn, max_size=3)


# --- The model: true, false, or None for "nobody knows"


def entry_says(entry: str, *, tool: bool) -> bool | None:
    match entry:
        case "tool":
            return tool
        case "true" | "yes":
            return True
        case "silent":
            return None
        case _:
            return False


def policy_says(drawn_: Drawn, *, tool: bool) -> tuple[bool | None, list[str]]:
    """Return what a policy says and whom it asks."""
    matching = [(source, entries) for source, entries in drawn_.rules or () if source != "other"]
    cheap = [entry for _, entries in matching for entry in entries if entry not in ANSWERS]
    if any(entry_says(entry, tool=tool) for entry in cheap):
        return True, []
    asks_everybody = [source == "any" and not ANSWERS.keys().isdisjoint(entries) for source, entries in matching]
    if not tool and any(entries and not asks for (_, entries), asks in zip(matching, asks_everybody, strict=True)):
        return True, []  # the base protocol
    asked: list[str] = []
    for entry in [entry for _, entries in matching for entry in entries if entry in ANSWERS]:
        asked.append(entry)
        if entry == "yes":
            return True, asked
    return (None if "silent" in asked else False), asked


def level_says(level: list[Drawn], composition: Composition, *, tool: bool) -> tuple[bool | None, list[str]]:
    if any(each.rules is None for each in level):
        return False, []
    asked: list[str] = []
    answers = []
    for each in level:
        answer, more = policy_says(each, tool=tool)
        asked += more
        answers.append(answer)
        if composition is Composition.ALL and answer is not True:
            return answer, asked
        if composition is Composition.ANY and answer:
            return True, asked
    if composition is Composition.ALL or not answers:
        return True, asked
    return (None if None in answers else False), asked


def built(level: list[Drawn], kind: str) -> list[AnyPolicy]:
    made: list[AnyPolicy] = []
    for number, each in enumerate(level):
        ref = Ref("AccessPolicy", "default", f"{kind}{number}")
        if each.rules is None:
            made.append(Unusable(ref=ref, reason="Invalid", message=""))
            continue
        rules = tuple(
            Rule(
                name=f"rule-{index}",
                source=SOURCES[source],
                entries=tuple(ENTRIES[entry] for entry in entries),
                base=bool(entries) and not (source == "any" and not ANSWERS.keys().isdisjoint(entries)),
            )
            for index, (source, entries) in enumerate(each.rules)
        )
        made.append(Policy(ref=ref, rules=rules))
    return made


@pytest.mark.slow
@pytest.mark.requirement("R5", "R42", "R43")
@settings(max_examples=200, deadline=None)
@given(gateway=levels, backend=levels, composition=st.sampled_from(Composition), tool=st.booleans())
def test_every_decision_and_every_question_is_as_the_model_says(
    gateway: list[Drawn], backend: list[Drawn], composition: Composition, tool: bool
) -> None:
    aims = {PolicyTarget(EDGE): built(gateway, "g"), PolicyTarget(SHOP): built(backend, "b")}
    held = Policies(
        settings=Settings(composition=composition, allow_unprotected=True),
        attachments=MappingProxyType({aim: build_attachment(aim, each) for aim, each in aims.items()}),
    )
    says, asked = level_says(gateway, composition, tool=tool)
    if says is True:
        says, more = level_says(backend, composition, tool=tool)
        asked = [*asked, *more]
    services = Services(**ANSWERS)
    verdict = judge(held, ADD_CALL if tool else LIST, workload(), services, target=THROUGH_EDGE)
    assert word(verdict) == {True: "allow", False: "403", None: "unavailable"}[says]
    assert services.names == asked


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(backend=levels, index=st.integers(0, 2), tool=st.booleans())
def test_a_policy_more_never_allows_more_where_all_must_allow(backend: list[Drawn], index: int, tool: bool) -> None:
    asked = ADD_CALL if tool else LIST
    if index >= len(backend) or len(backend) < 2:
        return
    fewer = [each for number, each in enumerate(backend) if number != index]
    words = []
    for level in (backend, fewer):
        attachment = build_attachment(PolicyTarget(SHOP), built(level, "b"))
        held = Policies(attachments=MappingProxyType({PolicyTarget(SHOP): attachment}))
        words.append(word(judge(held, asked, workload(), Services(**ANSWERS))))
    assert words[0] != "allow" or words[1] == "allow"


@pytest.mark.requirement("R40", "R42")
def test_all_policies_must_allow_and_the_first_that_does_not_is_named() -> None:
    made = policies(
        BACKEND,
        policy(rule(), name="z", created="2026-01-01T00:00:00Z"),
        policy(rule(authorization="[{type: InlineTools, tools: [add, sub]}]"), name="a"),
    )
    assert word(judge(made, ADD_CALL, workload())) == "allow"
    denied = judge(made, call("sub"), workload())
    assert (word(denied), denied.grounds.policy) == ("403", "AccessPolicy/default/z")


@pytest.mark.requirement("R43")
def test_with_any_one_policy_of_a_target_suffices_and_gateway_and_backend_both_must() -> None:
    documents = (
        BACKEND,
        GATEWAY,
        policy(rule(), name="a"),
        policy(rule(authorization="[{type: InlineTools, tools: [sub]}]"), name="b"),
        policy(
            rule(authorization="[{type: InlineTools, tools: [sub, mul]}]"),
            name="g",
            targets="[{kind: Gateway, name: edge}]",
        ),
    )
    all_, any_ = policies(*documents), policies(*documents, configured("{policyComposition: Any}"))
    words = {
        tool: [word(judge(made, call(tool), workload(), target=THROUGH_EDGE)) for made in (all_, any_)]
        for tool in ("add", "sub", "mul")
    }
    assert words == {"add": ["403", "403"], "sub": ["403", "allow"], "mul": ["403", "403"]}
