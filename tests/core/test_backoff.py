import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.core.backoff import backoff_delay


@pytest.mark.requirement("JW-7")
def test_delays_grow_by_1_6_from_one_second_to_two_minutes() -> None:
    delays = [round(backoff_delay(failures, 0.5), 3) for failures in range(1, 14)]
    assert delays == [1, 1.6, 2.56, 4.096, 6.554, 10.486, 16.777, 26.844, 42.95, 68.719, 109.951, 120, 120]


@given(st.integers(1, 10**9), st.floats(0, 1, exclude_max=True))
def test_jitter_moves_a_delay_by_a_fifth_at_most(failures: int, draw: float) -> None:
    middle = backoff_delay(failures, 0.5)
    assert 0.8 * middle * (1 - 1e-9) <= backoff_delay(failures, draw) <= 1.2 * middle * (1 + 1e-9)
