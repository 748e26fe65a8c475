"""Composite filters at random, and what our data plane makes of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias, assert_never

from google.protobuf import wrappers_pb2
from tests.oracles.plans import (
    MILLION,
    Abort,
    Check,
    Choice,
    Config,
    Deny,
    Ended,
    Filter,
    Grant,
    Inner,
    Pass,
    Passed,
    Permit,
    Remove,
    Run,
    Silence,
    Write,
    by_name,
)
from tests.oracles.resources import named_outcomes, target_of
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, Watched, drive
from tests.support.dataplane.ext_authz_messages import allowed, denied, header
from tests.support.matching.trees import NAMES, TEXTS, Request, Trees
from xds.type.matcher.v3 import matcher_pb2

from authplane.core.problems import Problem, Problems
from authplane.dataplane.config.listeners import ApiListener, ServerListener
from authplane.dataplane.config.read.decode_resource import decode_listener
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.filters.calls import (
    Answered,
    Ask,
    Call,
    Code,
    Effect,
    Flow,
    Outcome,
    Proceed,
    Running,
    Side,
    Stop,
    Unanswered,
)
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.filters.extauthz.service_config.service import SideChannel
from authplane.dataplane.filters.extensions.wire import parse_message
from authplane.dataplane.filters.registry import FilterType, Packed, Scope, State, Trust
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.dataplane.routing.call_routing import build_route_table

WRITTEN: Final = ("x-a", "x-b", "x-c")
"""The headers that filters change, so that the trees after them see it."""
PLAIN: Final = tuple(text for text in TEXTS if text and text.isascii())
CODES: Final = (1, 2, 3, 5, 6, 8, 9, 10, 11, 13, 15)
"""Those that no other filter ends a call with."""
SHARES: Final = (0, 1, 250_000, 500_000, 999_999, MILLION)
DRAWN: Final = (0.0, 0.1, 0.25, 0.499_999, 0.5, 0.999_999)
KINDS: Final = ("write", "write", "abort", "permit", "check", "check", "inner", "inner")
"""Of filters; what stands there twice is twice as likely."""
Answers: TypeAlias = dict[int, Grant | Remove | Deny | Silence]


# --- At random


class Configs:
    """Makes plans; the same number makes the same ones."""

    def __init__(
        self,
        seed: int,
        *,
        names: tuple[str, ...] = NAMES,
        prefixes: tuple[str, ...] = TEXTS,
        kinds: tuple[str, ...] = KINDS,
        shares: tuple[int, ...] = SHARES,
    ) -> None:
        self.chance = Random(seed)  # noqa: S311 (the same cases every time)
        self._trees = Trees(seed, keep_matching=False, names=names, prefixes=prefixes)
        self._kinds = kinds
        self._shares = shares
        self.answers: Answers = {}
        """What the services say that are asked."""

    def config(self) -> Config:
        chance = self.chance
        side = chance.choice((Side.CLIENT, Side.SERVER))
        levels = {level: self.choice() for level in ("host", "route") if chance.random() < 0.15}
        if side is Side.CLIENT and chance.random() < 0.15:
            levels["cluster"] = self.choice()
        return Config(side=side, filter=None if chance.random() < 0.03 else self.choice(), **levels)

    def choice(self, depth: int = 1) -> Choice:
        """Return a tree of trees with plans at its leaves; filters nest at most three deep."""
        tree = self._trees.tree(matcher_pb2.Matcher(), depth=2)
        if not tree.HasField("on_no_match") and self.chance.random() < 0.6:
            # Otherwise most calls would lead nowhere.
            tree.on_no_match.action.name = "end"
            tree.on_no_match.action.typed_config.Pack(wrappers_pb2.StringValue(value="end"))
        return Choice(tree, {name: self._plan(depth) for name, _ in named_outcomes(tree)})

    def request(self) -> Request:
        found = self._trees.request()
        return found if self.chance.random() < 0.1 else replace(found, authority=found.authority or "b")

    def _plan(self, depth: int) -> Pass | Run:
        chance = self.chance
        if chance.random() < 0.1:
            return Pass()
        size = chance.choice((0, 1, 1, 1, 2, 3))
        share = chance.choice(self._shares) if chance.random() < 0.25 else None
        return Run(tuple(self._filter(depth) for _ in range(size)), share)

    def _filter(self, depth: int) -> Filter:
        chance = self.chance
        name, text = chance.choice(WRITTEN), chance.choice(PLAIN)
        match chance.choice(self._kinds):
            case "write":
                return Write(name, text)
            case "abort":
                return Abort(chance.choice(CODES), chance.choice(self._shares))
            case "permit":
                return Permit(name, text, chance.random() < 0.5)
            case "inner" if depth < 3:
                return Inner(self.choice(depth + 1))
            case "inner":
                return Abort(chance.choice(CODES))
            case _:
                number = len(self.answers)
                self.answers[number] = chance.choice(
                    (Grant(name, text), Grant(name, text), Remove(name), Deny(chance.choice((401, 403))), Silence())
                )
                return Check(number, self.answers[number], chance.random() < 0.5)


# --- A filter of the tests' own


@dataclass(frozen=True)
class Writing:
    """Adds a header to the call, and its text to the response."""

    name: str
    text: str

    def build(self, state: State, override: object | None) -> Running:
        return self

    def run(self, call: Call) -> Flow:
        yield from ()
        return Proceed(metadata=(*call.metadata, (self.name, self.text)), response_metadata=(("written", self.text),))


def parse_writing(raw: Packed, scope: Scope) -> Writing | tuple[Problem, ...]:
    problems = Problems()
    message = parse_message(wrappers_pb2.StringValue, raw.value, problems)
    if message is None:
        return problems.errors
    name, _, text = message.value.partition("=")
    return Writing(name, text)


WRITING: Final = FilterType(type_urls=("google.protobuf.StringValue",), sides=frozenset(Side), parse=parse_writing)
SCOPE: Final = Scope(side=Side.CLIENT, trust=Trust(trusted=True), registry=standard_registry().adding(WRITING))


# --- Ours

Judge: TypeAlias = Callable[[Request, float], Ended | Passed]


def our_judge(listener: bytes, answers: Answers) -> Judge | str:
    """Return what our data plane does with calls; a text says what it refuses."""
    found = decode_listener(listener, SCOPE)
    match found:
        case ApiListener(manager=manager):
            side, template = Side.CLIENT, CLIENT_CALL
        case ServerListener(chains=(only,)):
            manager, side, template = only.manager, Side.SERVER, CALL
        case _:
            return str(found)
    assert isinstance(manager.routes, RouteConfiguration)
    drawn = [0.0]
    state = State(random=lambda: drawn[0], monotonic=Watched().clock)
    table = build_route_table(manager, manager.routes, side, state)

    def judge(request: Request, number: float) -> Ended | Passed:
        drawn[0] = number
        call = Call(
            side=side,
            path=request.path,
            authority=request.authority,
            metadata=request.metadata,
            started=template.started,
            remaining=None,
            connection=template.connection,
            target=template.target,
        )
        asked: list[int] = []
        verdict, _ = drive(run_chain(table.route(call, lambda: number).filters, call), _service(answers, asked))
        return _result(verdict, tuple(asked))

    return judge


def _result(verdict: Proceed | Stop, asked: tuple[int, ...]) -> Ended | Passed:
    match verdict:
        case Stop(code=code, message=message):
            return Ended(int(code), message, asked)
        case Proceed(metadata=metadata, response_metadata=added, response_mutations=()):
            return Passed(by_name(metadata), tuple(str(text) for _, text in added), asked)
        case _:
            raise AssertionError(verdict)


def _service(answers: Answers, asked: list[int]) -> Callable[[Effect], Outcome]:
    targets = {target_of(number): number for number in answers}

    def answer(effect: Effect) -> Outcome:
        assert isinstance(effect, Ask)
        assert isinstance(effect.channel, SideChannel)
        number = targets.get(effect.channel.target, -1)
        asked.append(number)
        match answers.get(number, Silence()):
            case Grant(name, text):
                return Answered(allowed(headers=[header(name, text, 2)]).SerializeToString())
            case Remove(name):
                return Answered(allowed(remove=[name]).SerializeToString())
            case Deny(status):
                return Answered(denied(status).SerializeToString())
            case Silence():
                return Unanswered(Code.UNAVAILABLE, "no connection")
            case other:
                assert_never(other)

    return answer
