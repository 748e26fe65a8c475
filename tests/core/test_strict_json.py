"""Strict JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.core.strict_json import Limits, NotStrict, parse_json

LIMITS = Limits(most_bytes=100_000)

REFUSED: dict[str, tuple[bytes, str]] = {
    "a member twice": (b'{"a":1,"a":2}', "a member is repeated"),
    "a member twice, once escaped": (rb'{"name":1,"na\u006de":2}', "a member is repeated"),
    "a member twice, deep inside": (b'{"x":[{"a":1,"a":[]}]}', "a member is repeated"),
    "not UTF-8": (b'{"a":"\xff"}', "not UTF-8"),
    "UTF-16": ("{}".encode("utf-16"), "not UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not JSON"),
    "half of a surrogate pair": (rb'{"a":"\ud800"}', "a string contains half of a surrogate pair"),
    "half of a surrogate pair in a name": (rb'{"\uDFFF":1}', "a string contains half of a surrogate pair"),
    "not a number": (b'{"a":NaN}', "not JSON"),
    "infinity": (b"[-Infinity]", "not JSON"),
    "a number that no float holds": (b"[1e400]", "a number is too large"),
    "an integer without end": (b"1" * 5000, "a number is too large"),
    "something after the value": (b"{} {}", "not JSON"),
    "lines of values": (b"{}\n{}", "not JSON"),
    "nothing": (b"", "not JSON"),
    "single quotes": (b"{'a':1}", "not JSON"),
    "a trailing comma": (b"[1,]", "not JSON"),
    "a control character in a text": (b'"a\nb"', "not JSON"),
    "too deep": (b"[" * 33 + b"]" * 33, "it is nested deeper than 32 levels"),
    "far too deep": (b"[" * 90_000, "it is nested deeper than 32 levels"),
    "too many members": (b"[" + b",".join([b"1"] * 10_001) + b"]", "it has more than 10000 members"),
    "too large": (b" " * 100_001, "it is larger than 100000 bytes"),
}


@pytest.mark.parametrize(("data", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_readers_disagree_on_is_refused(data: bytes, why: str) -> None:
    assert parse_json(data, LIMITS) == NotStrict(why)


def test_depth_is_not_counted_inside_of_texts() -> None:
    data = json.dumps({"a": '[{"\\' * 40, "b": [[1]]}).encode()
    assert parse_json(data, LIMITS) == json.loads(data)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.slow
@given(value=VALUES, ascii_only=st.booleans())
def test_every_other_value_is_read_as_it_was_written(value: Any, ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode(), LIMITS) == value
