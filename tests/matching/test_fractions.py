"""Shares of calls."""

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.type.v3 import percent_pb2
from hypothesis import given
from hypothesis import strategies as st

from authplane.core.problems import Problems
from authplane.matching.fractions import ALWAYS, NEVER, Fraction, capped, is_drawn
from authplane.matching.wire import parse_runtime_fraction

HUNDRED, TEN_THOUSAND, MILLION = range(3)


def message(numerator: int, denominator: int) -> base_pb2.RuntimeFractionalPercent:
    value = percent_pb2.FractionalPercent(numerator=numerator, denominator=denominator)  # type: ignore[arg-type]
    return base_pb2.RuntimeFractionalPercent(default_value=value, runtime_key="ignored")


@pytest.mark.requirement("HF-20")
@pytest.mark.parametrize(
    ("numerator", "denominator", "want"),
    [
        (0, HUNDRED, 0),
        (1, HUNDRED, 10_000),
        (100, HUNDRED, 1_000_000),
        (101, HUNDRED, 1_000_000),
        (429_497, HUNDRED, 1_000_000),  # times 10,000 this wraps around in 32 bits
        (2**32 - 1, HUNDRED, 1_000_000),
        (1, TEN_THOUSAND, 100),
        (42_949_673, TEN_THOUSAND, 1_000_000),
        (1, MILLION, 1),
        (2**32 - 1, MILLION, 1_000_000),
    ],
)
def test_a_fraction_is_capped_before_it_is_scaled(numerator: int, denominator: int, want: int) -> None:
    problems = Problems()
    assert parse_runtime_fraction(message(numerator, denominator), problems) == Fraction(want)
    assert not problems


@pytest.mark.requirement("HF-20")
def test_a_fraction_has_a_value() -> None:
    problems = Problems()
    assert parse_runtime_fraction(base_pb2.RuntimeFractionalPercent(runtime_key="x"), problems) is None
    assert [str(each) for each in problems] == ["default_value: This field is required. Add it. [ValueMissing]"]


@pytest.mark.requirement("HF-20")
def test_an_unknown_denominator_is_rejected() -> None:
    problems = Problems()
    value = percent_pb2.FractionalPercent.FromString(b"\x08\x01\x10\x09")
    assert parse_runtime_fraction(base_pb2.RuntimeFractionalPercent(default_value=value), problems) is None
    assert [str(each) for each in problems] == [
        "default_value.denominator: 9 is not a denominator. Supported: HUNDRED, TEN_THOUSAND, MILLION."
        " [DenominatorUnknown]"
    ]


@pytest.mark.parametrize(
    ("fraction", "number", "want"),
    [
        (NEVER, 0.0, False),
        (ALWAYS, 0.999_999_999, True),
        (Fraction(500_000), 0.499_999_9, True),
        (Fraction(500_000), 0.5, False),
        (Fraction(1), 0.0, True),
        (Fraction(1), 0.000_001, False),
    ],
)
def test_a_number_is_drawn_or_not(fraction: Fraction, number: float, *, want: bool) -> None:
    assert is_drawn(fraction, number) == want


@given(st.integers(0, 2**32 - 1), st.sampled_from([100, 10_000, 1_000_000]))
def test_capping_agrees_with_arithmetic(numerator: int, denominator: int) -> None:
    assert capped(numerator, denominator).per_million == min(numerator * 1_000_000 // denominator, 1_000_000)
