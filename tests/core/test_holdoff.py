"""Batching bursts of changes."""

import pytest

from authplane.core.holdoff import Holdoff
from authplane.sources.runtime.watch import LONGEST, QUIET


def test_a_steady_trickle_cannot_postpone_the_rebuild_forever() -> None:
    holdoff = Holdoff(quiet=1, longest=5)
    for now in (0.0, 0.9, 1.8, 2.7, 3.6, 4.5):
        holdoff.changed(now)
    assert holdoff.due() == 5
    holdoff.rebuilt()
    assert holdoff.due() is None


def test_a_single_change_waits_for_a_quiet_spell() -> None:
    holdoff = Holdoff(quiet=1, longest=5)
    holdoff.changed(2.0)
    assert holdoff.due() == 3.0


@pytest.mark.requirement("RB-1")
def test_a_rebuild_waits_a_tenth_of_a_second_and_half_a_second_at_most() -> None:
    holdoff = Holdoff(QUIET, LONGEST)
    assert holdoff.due() is None
    holdoff.changed(0.0)
    assert holdoff.due() == pytest.approx(0.1)
    for step in range(1, 10):
        holdoff.changed(step * 0.05)
    assert holdoff.due() == pytest.approx(0.5)
