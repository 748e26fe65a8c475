"""Timeouts as policy authors write them."""

from datetime import timedelta

import pytest

from authplane.core.timeouts import After, Disabled, Timeout, UseDefault, parse_timeout

CASES: dict[str, tuple[str | None, Timeout | None]] = {
    "absent means the default": (None, UseDefault()),
    "empty means the default": ("", UseDefault()),
    "zero means the default": ("0", UseDefault()),
    "zero with a unit too": ("0s", UseDefault()),
    "infinity disables": ("infinity", Disabled()),
    "infinite disables": ("infinite", Disabled()),
    "minutes and seconds add up": ("1m30s", After(timedelta(seconds=90))),
    "fractions": ("1.5h", After(timedelta(minutes=90))),
    "a fraction without its zero": (".5s", After(timedelta(milliseconds=500))),
    "milliseconds": ("250ms", After(timedelta(milliseconds=250))),
    "less than a millisecond is not none": ("1ns", After(timedelta(milliseconds=1))),
    "a bare number has no unit": ("30", None),
    "words": ("soon", None),
    "negative": ("-1s", None),
    "spaces": ("1 s", None),
    "a line end": ("1s\n", None),
    "other digits": ("\N{ARABIC-INDIC DIGIT ONE}s", None),
    "longer than any message can say": ("99999999999h", None),
}


@pytest.mark.requirement("ES-29")
@pytest.mark.parametrize(("text", "want"), CASES.values(), ids=CASES.keys())
def test_parse_timeout(text: str | None, want: Timeout | None) -> None:
    assert parse_timeout(text) == want
