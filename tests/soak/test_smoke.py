"""The soak itself, for a few seconds and with two faults, so that it does not rot."""

import pytest
from rich.console import Console
from tests.soak.faults import FAULTS
from tests.soak.report import bars_of
from tests.soak.run import Plan, soak

QUICK = {"worker killed", "certificates renewed"}
TIMELESS = {
    "requests that passed and must not",
    "kinds of requests that were answered",
    "programs that ended by themselves",
    "lines that cannot be read",
}
"""Bars without a limit in seconds, which a busy machine may miss."""


@pytest.mark.real
async def test_a_short_soak_lets_nothing_pass_and_answers_every_kind_of_request() -> None:
    faults = [fault for fault in FAULTS if fault.name in QUICK]
    plan = Plan(seconds=None, seed=1, faults=faults, warm_up=1, pause=1, edits=False)
    outcome = await soak(plan, Console(quiet=True))
    assert {window.name for window in outcome.windows} == QUICK
    bars = {bar.name: bar.holds for bar in bars_of(outcome)}
    assert {name: bars.get(name) for name in TIMELESS} == dict.fromkeys(TIMELESS, True)
