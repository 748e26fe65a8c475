"""Answers say who decided and why, and each check is recorded by its own answer, whatever happens meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import pytest
from tests.support.authservers.answers import answer
from tests.support.authservers.check_requests import check
from tests.support.authservers.log_lines import Lines
from tests.support.mcp.mcp_checks import tool_check
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, anybody, policy
from tests.support.policies.external_services import SERVICES, asks

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.authserver.engine.backend_choice import NOBODY, Branch, ByPath, Choice, choice_of
from authplane.authserver.engine.check_engine import Pending
from authplane.authserver.engine.http_check import Question, SameRequest, check_http
from authplane.authserver.fronts.runtime.answer_checks import Checks
from authplane.authserver.fronts.runtime.http_front import HttpChecks
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer, Observers
from authplane.authserver.records.runtime.verdict_metrics import VerdictCounts
from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.check_context import TARGET
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.verdicts.effects import Ask, Busy, Effect, Flow, Granted, Outcome, Work
from authplane.policy.verdicts.verdict import Grounds, Verdict, VerdictFlow


class Quick:
    """Allows at once."""

    name: Final = "quick"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        return Allow()


class Slow:
    """Allows after work."""

    name: Final = "slow"

    def decide(self, _request: Request, _now: datetime) -> Decision | Flow:
        return self._work()

    def _work(self) -> Flow:
        yield Work(lambda: True)
        return Allow()


class Broken:
    """Raises."""

    name: Final = "broken"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        raise KeyError("hunter2")


class Door:
    """Checks with three backends, and what was counted of each."""

    def __init__(self, perform: Callable[[Effect], Awaitable[Outcome]], *, in_flight: int = 10) -> None:
        self._metrics = Metrics()
        branches = [Branch(each.name, (ByPath(f"/{each.name}"),), each) for each in (Quick(), Slow(), Broken())]
        observers = {branch.name: self._observer(branch.name) for branch in branches}
        self._checks = Checks(
            Choice(branches),
            observer=Observers(observers, self._observer(NOBODY)),
            perform=perform,
            in_flight=in_flight,
        )

    def _observer(self, name: str) -> Observer:
        return Observer(name, self._metrics.checks(name))

    async def ask(self, path: str, *, limit: float | None = None) -> None:
        await self._checks.reply(check(path).SerializeToString(), limit=limit)

    async def ask_nonsense(self) -> None:
        await self._checks.reply(b"\xff")

    def counted(self) -> dict[str, float]:
        lines = [line.rpartition(" ") for line in self._metrics.text().decode().splitlines()]
        names = ("authplane_checks_total", "authplane_checks_in_flight", "authplane_checks_shed_total")
        return {name: float(value) for name, _, value in lines if name.startswith(names) and float(value)}


def total(backend: str, decision: str) -> str:
    return f'authplane_checks_total{{backend="{backend}",decision="{decision}"}}'


async def at_once(effect: Effect) -> Outcome:
    return effect.run() if isinstance(effect, Work) else Busy()


async def test_each_backend_records_its_own_checks_only() -> None:
    door = Door(at_once)
    for path in ("/quick", "/slow", "/broken", "/none", "/quick/../slow"):
        await door.ask(path)
        await door.ask_nonsense()
    assert door.counted() == {
        total("quick", "allow"): 1,
        total("slow", "allow"): 1,
        total("broken", "failed"): 1,
        total(NOBODY, "deny"): 7,
    }


async def test_a_pending_check_is_recorded_for_its_backend_despite_other_checks() -> None:
    go = asyncio.Event()

    async def wait(effect: Effect) -> Outcome:
        await go.wait()
        return effect.run() if isinstance(effect, Work) else Busy()

    door = Door(wait, in_flight=2)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(door.ask("/slow"))
        await asyncio.sleep(0)
        await door.ask("/slow")
        await door.ask("/quick")
        await door.ask_nonsense()
        assert door.counted() == {
            'authplane_checks_in_flight{backend="slow"}': 2,
            'authplane_checks_shed_total{backend="slow"}': 1,
            total("quick", "allow"): 1,
            total(NOBODY, "deny"): 1,
        }
        go.set()
    assert door.counted()[total("slow", "allow")] == 2


@pytest.mark.parametrize("limit", [0.0, 0.01])
async def test_a_late_check_is_recorded_for_its_backend(limit: float) -> None:
    async def never(_: Effect) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    door = Door(never)
    await door.ask("/slow", limit=limit)
    assert door.counted() == {total("slow", "unavailable"): 1}


async def test_a_later_check_is_recorded_for_its_own_backend() -> None:
    door = Door(at_once)
    begun = door._checks.begin(check("/slow").SerializeToString())
    assert not isinstance(begun, bytes)
    await door.ask_nonsense()
    await begun
    assert door.counted() == {total("slow", "allow"): 1, total(NOBODY, "deny"): 1}


# --- What a decision rests on comes with it


class NoIssuers:
    """Knows no issuer."""

    def keys_of(self, _name: str) -> None:
        return None

    def wanted(self, issuer: str, kid: str) -> None:
        raise AssertionError


class Reconsidering:
    """Judges by policies, and thinks about the verdict before it returns it."""

    def __init__(self, name: str, rules: str) -> None:
        self.name = name
        self._inner = AccessPolicies(Identifier(TokenInspector(NoIssuers())))
        self._inner.publish(policies(BACKEND, SERVICES, policy(rules, name=name)))

    def decide(self, request: Request, now: datetime) -> VerdictFlow:
        judged = self._inner.decide(request, now)
        verdict = judged if isinstance(judged, Verdict) else (yield from judged)
        yield Work(lambda: True)
        return verdict


def two_policy_backends() -> Choice:
    """Return a choice by path between a backend that calls an external service and one that does not."""
    asking = Reconsidering("asking", anybody(f"[{asks()}]"))
    listing = Reconsidering("listing", anybody("[{type: InlineTools, tools: [add]}]"))
    return Choice([Branch(each.name, (ByPath(f"/{each.name}"),), each) for each in (asking, listing)])


class Turns:
    """Performs effects in the order that a test wants."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Effect, asyncio.Event]] = []

    async def perform(self, effect: Effect) -> Outcome:
        """Wait for one's turn."""
        turn = asyncio.Event()
        self._waiting.append((effect, turn))
        await turn.wait()
        return Granted() if isinstance(effect, Ask) else True

    async def let(self, number: int) -> None:
        """Let the waiting effect of this number go on, and wait until its check has."""
        self._waiting.pop(number)[1].set()
        await settled()

    @property
    def waiting(self) -> list[type]:
        return [type(effect) for effect, _ in self._waiting]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def recorded(choice: Choice, lines: Lines) -> tuple[Observers, dict[str, VerdictCounts]]:
    """Return observers for a choice, and what each backend's verdicts are counted in."""
    metrics, counts = Metrics(), {branch.name: VerdictCounts() for branch in choice.branches}
    observers = {
        name: Observer(name, metrics.checks(name), lines=lines, verdicts=(each.record,))
        for name, each in counts.items()
    }
    return Observers(observers, Observer(NOBODY, metrics.checks(NOBODY), lines=lines)), counts


def asked(path: str, tool: str) -> bytes:
    message = tool_check(tool, context={TARGET: "Backend/default/shop"})
    message.attributes.request.http.path = path
    return message.SerializeToString()


@pytest.mark.requirement("S15")
async def test_checks_that_overlap_are_each_recorded_with_their_own_grounds_and_backend() -> None:
    choice, lines, turns = two_policy_backends(), Lines(), Turns()
    observers, counts = recorded(choice, lines)
    checks = Checks(choice, observer=observers, perform=turns.perform)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        for path, tool in (("/asking", "add"), ("/listing", "add"), ("/listing", "sub"), ("/asking", "sub")):
            tasks.create_task(checks.reply(asked(path, tool)))
            await settled()
        assert turns.waiting == [Ask, Work, Work, Ask]
        # Both services have answered, so that all four have a verdict; they end in another order than they began.
        await turns.let(3)
        await turns.let(0)
        assert (turns.waiting, lines.written) == ([Work, Work, Work, Work], [])
        for number in (1, 2, 0, 0):
            await turns.let(number)
    assert lines.grounds() == [
        ("listing", "deny", "AccessPolicy/default/listing", "sub", "/listing"),
        ("asking", "allow", "AccessPolicy/default/asking", "add", "/asking"),
        ("listing", "allow", "AccessPolicy/default/listing", "add", "/listing"),
        ("asking", "allow", "AccessPolicy/default/asking", "sub", "/asking"),
    ]
    assert {name: sum(each.decided.values()) for name, each in counts.items()} == {"asking": 2, "listing": 2}


def test_flows_of_equal_questions_return_each_its_own_verdict() -> None:
    verdicts = iter([Verdict(Allow(), Grounds("first")), Verdict(Allow(), Grounds("second"))])

    class Numbering:
        name: Final = "numbering"

        def decide(self, _request: Request, _now: datetime) -> VerdictFlow:
            verdict = next(verdicts)
            yield Work(lambda: True)
            return verdict

    choice, now = choice_of(Numbering()), datetime.now(UTC)
    question = Question(method="GET", target="/", headers=((b"host", b"a"),))
    made = [check_http(choice, SameRequest(), question, now) for _ in range(2)]
    flows = [each.flow for each in made if isinstance(each, Pending)]
    for flow in flows:
        next(flow)
    found = []
    for flow in reversed(flows):
        with pytest.raises(StopIteration) as finished:
            flow.send(True)
        found.append((finished.value.value.backend, finished.value.value.verdict.grounds.policy))
    assert found == [("numbering", "second"), ("numbering", "first")]


async def test_http_checks_that_overlap_are_each_recorded_with_their_own_grounds_and_backend() -> None:
    branches = [Branch(name, (ByPath(f"/{name}"),), Named(name)) for name in ("a", "b")]
    choice, lines, turns = Choice(branches), Lines(), Turns()
    observers, _ = recorded(choice, lines)
    checks = HttpChecks(choice, SameRequest(), observer=observers, perform=turns.perform)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        for path in ("/a", "/b", "/c"):
            question = Question(method="GET", target=path, headers=((b"host", b"shop.example"),))
            tasks.create_task(checks.respond(question))
            await settled()
        await turns.let(1)
        await turns.let(0)
    assert lines.grounds() == [
        (NOBODY, "deny", "", "", "/c"),
        ("b", "deny", "policy of b", "", "/b"),
        ("a", "deny", "policy of a", "", "/a"),
    ]


class Named:
    """Denies after work, in its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def decide(self, _request: Request, _now: datetime) -> VerdictFlow:
        yield Work(lambda: True)
        return Verdict(Deny(http_status=403, rule="no"), Grounds(f"policy of {self.name}"))


def test_a_denial_in_place_of_what_cannot_be_sent_keeps_the_grounds() -> None:
    verdict = Verdict(Allow(edits=HeaderEdits(set=((":path", "/"),))), Grounds("AccessPolicy/shop/odd", rule="reads"))

    class Odd:
        name: Final = "odd"

        def decide(self, _request: Request, _now: datetime) -> Verdict:
            return verdict

    made = answer(Odd(), check().SerializeToString(), datetime.now(UTC))
    assert (type(made.decision), made.backend, made.verdict) == (Deny, "odd", verdict)
