"""What composite filters are to do, and a model that says what becomes of a call: gRFC A103 in few words.

The tree of a choice is a message whose actions are names of plans; `tests.support.matching.trees` has the model for
trees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from tests.support.matching.trees import Request, header, verdict

from authplane.dataplane.filters.calls import Side

FAULT: Final = "envoy.extensions.filters.http.fault.v3.HTTPFault"
RBAC: Final = "envoy.extensions.filters.http.rbac.v3.RBAC"
MILLION: Final = 1_000_000


# --- Plans


@dataclass(frozen=True, slots=True)
class Write:
    """Adds a header to the call, and its text to the response."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Abort:
    """Ends a share of the calls, on clients."""

    code: int
    per_million: int = MILLION


@dataclass(frozen=True, slots=True)
class Permit:
    """Lets calls pass whose header is this text, or only others; on servers."""

    name: str
    text: str
    others: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """An answer: the call goes on with this header."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Remove:
    """An answer: the call goes on without this header."""

    name: str


@dataclass(frozen=True, slots=True)
class Deny:
    """An answer: the call ends."""

    http_status: int


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer comes."""


@dataclass(frozen=True, slots=True)
class Check:
    """Asks the service of a number, of which the answer is known."""

    number: int
    answer: Grant | Remove | Deny | Silence
    fails_open: bool


@dataclass(frozen=True, slots=True)
class Inner:
    """Another composite filter."""

    choice: "Choice"


Filter: TypeAlias = Write | Abort | Permit | Check | Inner


@dataclass(frozen=True, slots=True)
class Pass:
    """No filter runs."""


@dataclass(frozen=True, slots=True)
class Run:
    """These filters run for a share of the calls."""

    filters: tuple[Filter, ...]
    per_million: int | None = None
    """None says nothing of a share."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A tree, and the plans that its actions name."""

    tree: Any
    plans: Mapping[str, Pass | Run] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A filter, and what stands for its tree on the virtual host, the route and the cluster of all calls."""

    side: Side
    filter: Choice | None
    host: Choice | None = None
    route: Choice | None = None
    cluster: Choice | None = None
    """On clients only."""


# --- The model


class Ended(NamedTuple):
    """The call was ended."""

    code: int
    message: str
    asked: tuple[int, ...] = ()


class Passed(NamedTuple):
    """The call went on."""

    headers: Mapping[str, tuple[str | bytes, ...]]
    response: tuple[str, ...]
    """What was added to the response, in order."""
    asked: tuple[int, ...]


NO_MATCH: Final = Ended(14, "no match found in composite filter")
NO_AUTHORITY: Final = Ended(14, "the composite filter reads the authority of the call, which is unknown")
_CODES: Final = {401: 16, 403: 7, 404: 12}


def judged(config: Config, request: Request, drawn: float) -> Ended | Passed:
    """Tell what becomes of a call; every number that is drawn for it is the same."""
    chosen = next((each for each in (config.cluster, config.route, config.host) if each is not None), config.filter)
    model = _Model(config.side, request, drawn)
    ended = None if chosen is None else model.choose(chosen)
    asked = tuple(model.asked)
    if ended is not None:
        return ended._replace(asked=asked)
    return Passed(by_name(model.request.metadata), tuple(reversed(model.written)), asked)


def by_name(metadata: tuple[tuple[str, str | bytes], ...]) -> Mapping[str, tuple[str | bytes, ...]]:
    """Return the values of each header: in which order names stand does not count."""
    return {name: tuple(value for key, value in metadata if key == name) for name, _ in metadata}


class _Model:
    """One call on its way."""

    def __init__(self, side: Side, request: Request, drawn: float) -> None:
        self.request = request
        self.asked: list[int] = []
        self.written: list[str] = []
        self._side = side
        self._drawn = drawn * MILLION

    def choose(self, choice: Choice) -> Ended | None:
        if self.request.authority is None and asks_authority(choice.tree):
            return NO_AUTHORITY
        found = verdict(choice.tree, self.request)
        if not found.matched:
            return NO_MATCH
        plan = choice.plans[found.actions[-1]]
        if isinstance(plan, Pass) or (plan.per_million is not None and self._drawn >= plan.per_million):
            return None
        # What cannot be run here is not begun either.
        foreign = next((name for each in plan.filters if (name := self._foreign(each))), "")
        if foreign:
            return Ended(14, f"{foreign} filter not supported on {self._side.value}s")
        return next((ended for each in plan.filters if (ended := self._run(each)) is not None), None)

    def _foreign(self, each: Filter) -> str:
        match each:
            case Abort() if self._side is Side.SERVER:
                return FAULT
            case Permit() if self._side is Side.CLIENT:
                return RBAC
            case _:
                return ""

    def _run(self, each: Filter) -> Ended | None:
        match each:
            case Write(name, text):
                self.request = replace(self.request, metadata=(*self.request.metadata, (name, text)))
                self.written.append(text)
                return None
            case Abort(code, per_million):
                return Ended(code, "fault injected by the fault filter") if self._drawn < per_million else None
            case Permit(name, text, others):
                is_this = header(name, self.request) == text
                return None if is_this != others else Ended(7, "an RBAC policy denies the call")
            case Check():
                return self._check(each)
            case Inner(choice):
                return self.choose(choice)
            case _:
                assert_never(each)

    def _check(self, check: Check) -> Ended | None:
        self.asked.append(check.number)
        metadata = self.request.metadata
        match check.answer:
            case Grant(name, text):
                metadata = (*(pair for pair in metadata if pair[0] != name), (name, text))
            case Remove(name):
                metadata = tuple(pair for pair in metadata if pair[0] != name)
            case Deny(status):
                return Ended(_CODES[status], "denied by the authorization service")
            case Silence():
                return None if check.fails_open else Ended(7, "the authorization service made no decision")
            case _:
                assert_never(check.answer)
        self.request = replace(self.request, metadata=metadata)
        return None


def asks_authority(tree: Any) -> bool:
    """Tell whether a tree asks for the authority: no other text of a generated tree has these words."""
    data = tree.SerializeToString()
    return b":authority" in data or b"host" in data
