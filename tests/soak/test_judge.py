"""The judge of the soak: which answers are right, which are excused, and which never are."""

from typing import NamedTuple

import pytest
from tests.soak.judge import NOBODY, Announced, Answer, Edit, Window, judge
from tests.soak.memory import grown_of, slope_of
from tests.soak.requests import Kind, Right

ADD = Kind("bank", Right.ALLOW)
STEAL = Kind("bank", Right.DENY)
SELL = Kind("bank", Right.BY_EDIT)
ANNOUNCED = Announced(
    windows=[Window("killed", frozenset({ADD, STEAL}), 10, 20), Window("away", frozenset(), 30, 40)],
    edits=[Edit("bank", sells=False, written=50, settled=53), Edit("bank", sells=True, written=60, settled=65)],
)


class Case(NamedTuple):
    kind: Kind
    at: float
    status: int
    want: str
    reached: bool = False


CASES = {
    "allowed": Case(ADD, 1, 200, "right"),
    "denied": Case(STEAL, 1, 403, "right"),
    "refused by mistake": Case(ADD, 1, 403, "closed"),
    "not answered": Case(ADD, 1, NOBODY, "closed"),
    "denied with another status": Case(STEAL, 1, 503, "closed"),
    "fails in a window": Case(ADD, 15, 503, "excused"),
    "fails after a window": Case(ADD, 21, 503, "closed"),
    "fails in a window that is not for it": Case(ADD, 35, 503, "closed"),
    "passes by mistake": Case(STEAL, 1, 200, "open"),
    "passes in a window": Case(STEAL, 15, 200, "open"),
    "reaches the origin and is denied": Case(STEAL, 15, 403, "open", reached=True),
    "before the edit": Case(SELL, 49, 200, "right"),
    "before the edit, denied": Case(SELL, 49, 403, "closed"),
    "while the edit takes effect, as before": Case(SELL, 52, 200, "right"),
    "while the edit takes effect, as after": Case(SELL, 52, 403, "right"),
    "after the edit": Case(SELL, 54, 403, "right"),
    "after the edit, allowed": Case(SELL, 54, 200, "open"),
    "after the second edit": Case(SELL, 66, 200, "right"),
    "after the second edit, denied": Case(SELL, 66, 403, "closed"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_judge(case: Case) -> None:
    answer = Answer(1, case.kind, case.at, case.at + 0.1, case.status)
    verdict = judge([answer], ANNOUNCED, {1} if case.reached else set())
    found = {
        "right": verdict.right.total(),
        "excused": verdict.excused.total(),
        "open": len(verdict.wrong_open),
        "closed": len(verdict.wrong_closed),
    }
    assert {name for name, count in found.items() if count} == {case.want}


def test_a_leak_is_growth_and_a_crowd_is_not() -> None:
    steady = [(second, 100.0) for second in range(600)]
    crowd = [(second, 130.0 if second > 200 else 100.0) for second in range(600)]
    leak = [(second, 100.0 + second / 60) for second in range(600)]
    assert [round(slope_of(each), 3) for each in (steady, crowd, leak)] == [0, 0, 1]
    assert [round(grown_of(each)) for each in (steady, crowd, leak)] == [0, 30, 9]
