"""The reference engine and the real Envoy give the same answers."""

import pytest
from tests.differential.differences import Tally
from tests.differential.envoy import PLACEMENTS, Placement
from tests.differential.exceptions import KNOWN
from tests.differential.run import batches, try_batch

CASES = 5_280
SETS = 15
PER_SET = 88
SEED = 1


@pytest.mark.parametrize("placement", PLACEMENTS, ids=lambda each: each.name)
async def test_envoy_allows_what_the_reference_allows_and_nothing_else(placement: Placement) -> None:
    tally = Tally()
    for batch in batches(CASES, SEED, sets=SETS, per_set=PER_SET):
        await try_batch(batch, placement, tally)
    assert [f"{each.kind}: {each.wanted} {each.got} {each.case} {each.policies}" for each in tally.differences] == []
    assert (tally.cases, tally.sets) == (CASES, CASES // PER_SET)
    assert tally.allowed > CASES // 8, "what is denied anyway proves little"
    assert sorted(tally.known) == sorted(KNOWN), "an exception that nothing needs is to be deleted"
