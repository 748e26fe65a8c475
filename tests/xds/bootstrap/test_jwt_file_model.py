"""Credentials from a token file against a model that keeps all of history and reasons from it."""

import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.issuers.jwt_files import token

from authplane.xds.bootstrap.jwt_file_state import (
    Answer,
    Bearer,
    JwtFile,
    Moment,
    Queued,
    Unauthenticated,
    Unavailable,
    Unreadable,
)

pytestmark = pytest.mark.slow

EPOCH = 1_800_000_000


@dataclass(frozen=True)
class Read:
    """A read that ended: with a token of that name and exp, or with the word for its failure."""

    at: float
    draw: float
    name: str = ""
    exp: float = 0.0
    failure: str = ""


@dataclass
class History:
    """All that happened; what must hold is worked out from it anew each time."""

    reads: list[Read] = field(default_factory=list)
    reading: bool = False

    def token_at(self, now: float) -> str:
        """Name the token that calls may use: of the latest good read, up to 30 s before it expires."""
        good = [each for each in self.reads if not each.failure]
        return good[-1].name if good and EPOCH + now + 30 < good[-1].exp else ""

    def wants_read_at(self, now: float) -> bool:
        good = [each for each in self.reads if not each.failure]
        fresh = bool(good) and good[-1].exp - 30 - (EPOCH + now) > 60
        return not fresh and not self.reading and not self.quiet_at(now)

    def quiet_at(self, now: float) -> bool:
        """Tell whether the reads at the end that failed forbid another one yet."""
        run = 0
        for each in reversed(self.reads):
            if not each.failure:
                break
            run += 1
        if run == 0:
            return False
        delay = 1.0
        for _ in range(run - 1):
            delay = min(120.0, delay * 1.6)
        last = self.reads[-1]
        return now < last.at + delay * (0.8 + 0.4 * last.draw)

    def expected(self, now: float, *, starts: bool) -> str:
        """Return what a call gets: a token's name, 'waits', or the failure of the last read."""
        usable = self.token_at(now)
        if usable:
            return usable
        return "waits" if self.reading or starts else self.reads[-1].failure


class Credentials(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.file = JwtFile()
        self.history = History()
        self.now = 0.0
        self.waiting = 0

    @initialize(start=st.integers(0, 1000))
    def begin(self, start: int) -> None:
        self.now = float(start)

    # Quarters are exact in floats, and so is every sum of them; draws keep the ends of delays off them.
    @rule(quarters=st.sampled_from([1, 2, 3, 4, 5, 6, 10, 40, 119, 120, 121, 239, 240, 241, 480, 2400, 14400]))
    def wait(self, quarters: int) -> None:
        self.now += quarters / 4

    @precondition(lambda self: any(not each.failure for each in self.history.reads))
    @rule(edge=st.sampled_from([30, 90]), offset=st.sampled_from([-0.25, 0.0, 0.25]))
    def wait_until_the_token_is_at_an_edge(self, edge: int, offset: float) -> None:
        exp = [each.exp for each in self.history.reads if not each.failure][-1]
        self.now = max(self.now, exp - EPOCH - edge + offset)

    @rule()
    def call(self) -> None:
        reads = self.history.wants_read_at(self.now)
        want = self.history.expected(self.now, starts=reads)
        started = self.file.call_started(self._moment())
        assert started.read == reads
        assert (_word(started.answer) if not isinstance(started.answer, Queued) else "waits") == want
        self.history.reading |= reads
        self.waiting += want == "waits"

    @precondition(lambda self: self.history.reading)
    @rule(draw=st.floats(0.01, 0.99), why=st.sampled_from(["gone", "forbidden"]))
    def read_fails(self, draw: float, why: str) -> None:
        self._end(Unreadable(why), Read(self.now, draw, failure="UNAVAILABLE"))

    @precondition(lambda self: self.history.reading)
    @rule(draw=st.floats(0.01, 0.99), content=st.sampled_from([b"", b"rubbish", b"a.b.c", b"e30.e30.e30"]))
    def read_finds_rubbish(self, draw: float, content: bytes) -> None:
        self._end(content, Read(self.now, draw, failure="UNAUTHENTICATED"))

    @precondition(lambda self: self.history.reading)
    @rule(draw=st.floats(0.01, 0.99), left=st.sampled_from([-100, 0, 29, 30, 31, 32, 60, 89, 90, 91, 100, 600, 3600]))
    def read_finds_token(self, draw: float, left: int) -> None:
        exp = float(int(EPOCH + self.now) + left)
        name = f"token-{len(self.history.reads)}"
        usable = exp - 30 > EPOCH + self.now
        read = Read(self.now, draw, name, exp) if usable else Read(self.now, draw, failure="UNAUTHENTICATED")
        self._end(token(exp, name).encode(), read)

    @invariant()
    def calls_wait_only_while_the_file_is_read(self) -> None:
        assert not self.waiting or self.history.reading

    def _end(self, content: bytes | Unreadable, read: Read) -> None:
        answer = self.file.read_ended(content, self._moment(), read.draw)
        self.history.reads.append(read)
        self.history.reading = False
        self.waiting = 0
        assert _word(answer) == (read.failure or read.name)

    def _moment(self) -> Moment:
        return Moment(wall=EPOCH + self.now, steady=self.now)


def _word(answer: Answer) -> str:
    match answer:
        case Bearer(token=text):
            name: str = json.loads(urlsafe_b64decode(text.reveal().split(".")[1] + "=="))["sub"]
            return name
        case Unavailable():
            return "UNAVAILABLE"
        case Unauthenticated():
            return "UNAUTHENTICATED"


TestCredentials = pytest.mark.requirement("JW-2", "JW-3", "JW-4", "JW-5", "JW-7", "JW-8", "W06")(Credentials.TestCase)
TestCredentials.settings = settings(max_examples=100, stateful_step_count=40)
