"""The reference engine and the real Envoy give the same answers, whoever decides."""

from collections import Counter

import pytest
from tests.differential.differences import Tally
from tests.differential.exceptions import KNOWN
from tests.differential.placements import AUTO, CALL_OUT, PLACEMENTS
from tests.differential.run import LEAST_NATIVE, LOAD, batches, try_batch

CASES = 4_200
SETS = 15
PER_SET = 70
SEED = 3


@pytest.mark.real
async def test_envoy_allows_what_the_reference_allows_and_nothing_else() -> None:
    tallies = {placement: Tally(placement=placement) for placement in PLACEMENTS}
    for batch in batches(CASES, SEED, sets=SETS, per_set=PER_SET):
        await try_batch(batch, tallies)
    assert [
        f"{each.placement.name} {each.version.number} {each.kind}: {each.wanted} {each.got} {each.case} {each.policies}"
        for tally in tallies.values()
        for each in tally.differences
    ] == []
    for tally in tallies.values():
        assert tally.allowed > CASES // 10, "what is denied anyway proves little"
    needed = Counter[str]()
    for tally in tallies.values():
        needed.update(tally.known)
    # Those of native decisions are met in longer runs.
    wanted = {name for name, known in KNOWN.items() if CALL_OUT in known.only}
    assert wanted <= set(needed), "an exception that nothing needs is to be deleted"
    assert (tallies[AUTO].cases, tallies[AUTO].sets) == (CASES, 2 * CASES // PER_SET)
    assert tallies[AUTO].changing >= LOAD * CASES // (SETS * PER_SET)
    assert tallies[AUTO].native_share >= LEAST_NATIVE
    assert tallies[CALL_OUT].native == 0
    assert tallies[AUTO].native > CASES // 6, "otherwise it is call-out by another name"
