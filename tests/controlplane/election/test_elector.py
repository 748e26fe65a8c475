"""At most one replica leads at any moment, whatever their clocks say and whatever the network does."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from authplane.controlplane.election.elector import Elector
from authplane.controlplane.election.lease_record import Lease, lease_body, parse_lease

OTHER = Lease(holder="b", duration=10, acquired="then", renewed="r1", transitions=3, resource_version="5", uid="u")


def followed(lease: Lease | None, now: float = 100.0) -> Elector:
    elector = Elector("a")
    elector.observed(lease, now)
    return elector


def leading(began: float = 100.0) -> Elector:
    elector = followed(None, began)
    wanted = elector.attempt(began, "t")
    assert wanted is not None
    elector.written(replace(wanted, resource_version="1", uid="u"), began)
    return elector


@pytest.mark.requirement("KU-20")
def test_without_a_lease_a_replica_makes_one() -> None:
    elector = followed(None)
    assert not elector.leads(100.0)
    assert elector.attempt(100.0, "t") == Lease(holder="a", duration=10, acquired="t", renewed="t")


def test_before_the_first_reading_a_replica_does_nothing() -> None:
    assert Elector("a").attempt(100.0, "t") is None


@pytest.mark.requirement("KU-21")
def test_a_leader_stops_six_seconds_after_it_began_its_last_renewal() -> None:
    elector = leading(100.0)
    assert elector.leads(105.9)
    assert not elector.leads(106.0)
    elector.failed()
    assert elector.leads(105.9)
    again = elector.attempt(106.5, "later")
    assert again is not None
    assert (again.acquired, again.renewed, again.resource_version) == ("t", "later", "1")
    elector.written(replace(again, resource_version="2"), 106.5)
    assert elector.leads(112.4)


@pytest.mark.requirement("KU-22")
@pytest.mark.parametrize("renewed", ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "no time"])
def test_the_others_clock_is_never_compared(renewed: str) -> None:
    elector = followed(replace(OTHER, renewed=renewed))
    assert elector.attempt(109.9, "t") is None
    taken = elector.attempt(110.0, "t")
    assert taken is not None
    assert (taken.holder, taken.transitions, taken.resource_version) == ("a", 4, "5")


@pytest.mark.requirement("KU-22")
def test_a_lease_that_changes_begins_anew() -> None:
    elector = followed(OTHER)
    elector.observed(replace(OTHER, renewed="r2", resource_version="6"), 105.0)
    assert elector.attempt(114.9, "t") is None
    assert elector.attempt(115.0, "t") is not None
    elector.observed(replace(OTHER, renewed="r2", resource_version="9"), 116.0)
    assert elector.attempt(116.0, "t") is not None, "a change of something else is no renewal"


def test_the_longer_duration_counts() -> None:
    assert followed(replace(OTHER, duration=30)).attempt(129.0, "t") is None
    assert followed(replace(OTHER, duration=1)).attempt(109.0, "t") is None


def test_a_released_lease_is_free_at_once() -> None:
    elector = leading()
    given = elector.release("end")
    assert given == Lease(
        holder="", duration=1, acquired="t", renewed="end", transitions=0, resource_version="1", uid="u"
    )
    assert not elector.leads(100.1)
    assert followed(given).attempt(100.0, "t") is not None
    assert followed(OTHER).release("end") is None


def test_a_replica_waits_no_longer_than_until_the_lease_ends() -> None:
    elector = followed(OTHER)
    assert (elector.wait(100.0), elector.wait(109.5), elector.wait(111.0)) == (2.0, 0.5, 0.0)
    assert leading().wait(100.0) == 2.0


def test_a_leader_reads_its_lease_only_after_a_failure() -> None:
    elector = leading()
    assert not elector.must_read
    elector.failed()
    assert elector.must_read
    elector.observed(replace(OTHER, holder="b"), 101.0)
    assert not elector.leads(101.0)


def test_a_lease_survives_the_api() -> None:
    body = lease_body(replace(OTHER, annotations={"x": "y"}), "ns", "name", "leader")
    assert parse_lease(body) == replace(OTHER, annotations={"x": "y"})


class Server:
    """An API server: it stores one Lease, and refuses writes whose precondition does not hold."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self._version = 0

    def write(self, lease: Lease) -> Lease | None:
        if lease.resource_version != (self.lease.resource_version if self.lease else ""):
            return None
        self._version += 1
        self.lease = replace(lease, resource_version=str(self._version))
        return self.lease


NAMES: Final = ("a", "b", "c")


class Elections(RuleBasedStateMachine):
    """Replicas that stop for any time between any two steps; requests arrive late, or lose their answers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = Server()
        self.replicas = {name: Elector(name) for name in NAMES}
        self.offsets = {"a": 0.0, "b": 1e6, "c": -500.0}
        self.flying: list[tuple[str, Lease, float]] = []

    def clock(self, name: str) -> float:
        return self.now + self.offsets[name]

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 2.0, 5.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=st.sampled_from(NAMES))
    def read(self, name: str) -> None:
        self.replicas[name].observed(self.server.lease, self.clock(name))

    @rule(name=st.sampled_from(NAMES))
    def send(self, name: str) -> None:
        wanted = self.replicas[name].attempt(self.clock(name), f"{name} {self.now}")
        if wanted is not None:
            self.flying.append((name, wanted, self.clock(name)))

    @precondition(lambda self: self.flying)
    @rule(which=st.integers(0, 5), answered=st.booleans())
    def arrive(self, which: int, *, answered: bool) -> None:
        name, wanted, began = self.flying.pop(which % len(self.flying))
        stored = self.server.write(wanted)
        if stored is None or not answered:
            self.replicas[name].failed()
        else:
            self.replicas[name].written(stored, began)

    @rule(name=st.sampled_from(NAMES))
    def act(self, name: str) -> None:
        """Do all that a replica does in one turn, at once."""
        self.read(name)
        self.send(name)
        if self.flying:
            self.arrive(len(self.flying) - 1, answered=True)

    @rule(name=st.sampled_from(NAMES))
    def step_down(self, name: str) -> None:
        given = self.replicas[name].release(f"end {self.now}")
        if given is not None:
            self.server.write(given)

    @invariant()
    def at_most_one_leads(self) -> None:
        leaders = [name for name, each in self.replicas.items() if each.leads(self.clock(name))]
        assert len(leaders) <= 1


TestElections = pytest.mark.slow(pytest.mark.requirement("KU-23")(Elections.TestCase))
TestElections.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
