"""Batching bursts of changes."""

from authplane.xds.holdoff import Holdoff


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
