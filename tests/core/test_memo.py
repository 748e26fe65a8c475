"""Building only what has changed: what each memory gives again, and what it forgets."""

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.core.memo import Held, Memo, Same, Tables, Watched


@dataclass(frozen=True)
class Value:
    """A value that is equal to others."""

    text: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Heavy:
    """A value that can be held or let go."""

    text: str


class Maker:
    """Makes values and counts."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, text: str) -> Callable[[], Value]:
        def make() -> Value:
            self.made.append(text)
            return Value(text)

        return make


def test_what_is_made_is_given_again_while_each_generation_asks_for_it() -> None:
    memo, maker = Memo[str, Value](), Maker()
    asked: Iterable[str]
    for asked in ("ab", "ab", "a", "ab"):
        memo.start()
        found = [memo.ensure(key, None, maker(key)) for key in asked]
        assert found == [Value(key) for key in asked]
    assert maker.made == ["a", "b", "b"]


def test_other_inputs_make_it_anew_and_equal_ones_do_not() -> None:
    memo, maker = Memo[str, Value](), Maker()
    first = memo.ensure("k", (1, "x"), maker("k"))
    memo.start()
    assert memo.ensure("k", (1, "x"), maker("k")) is first
    assert memo.ensure("k", (2, "x"), maker("k")) is not first
    assert maker.made == ["k", "k"]


def test_another_common_value_makes_all_anew() -> None:
    memo, maker = Memo[str, Value](), Maker()
    for common in ("one", "one", "two"):
        memo.start(common)
        memo.ensure("k", None, maker("k"))
    assert maker.made == ["k", "k"]


def test_an_equal_object_is_exchanged_for_the_known_one() -> None:
    memo = Memo[str, Value]()
    first, equal, other = Value("a"), Value("a"), Value("b")
    assert memo.share("k", first) is first
    memo.start()
    assert memo.share("k", equal) is first
    memo.start()
    assert memo.share("k", other) is other
    memo.start()
    memo.start()
    assert memo.share("k", equal) is equal


def test_objects_are_compared_by_identity_however_equal_they_are() -> None:
    one, equal = Value("a"), Value("a")
    assert Same(one, equal) == Same(one, equal)
    assert hash(Same(one, equal)) == hash(Same(one, equal))
    for different in (Same(one, one), Same(one), Same(equal, one), one):
        assert Same(one, equal) != different


def test_the_place_of_an_object_that_is_gone_is_not_mistaken_for_it() -> None:
    memo = Memo[Same, str]()
    for number in range(100):
        # Each object would get the place of the last one, if that were gone.
        assert memo.ensure(Same(Value(str(number))), None, partial(str, number)) == str(number)


def test_a_referenced_value_is_returned_again_and_dropped_without_references() -> None:
    held, made = Held[str, Heavy](), list[str]()

    def make() -> Heavy:
        made.append("now")
        return Heavy("a")

    first = held.ensure("k", make)
    assert held.ensure("k", make) is first
    assert made == ["now"]
    del first
    gc.collect()
    assert held.ensure("k", make) == Heavy("a")
    assert made == ["now", "now"]


# --- What is not told, but seen


def following(tables: Tables, key: str, more: int = 0) -> tuple[Any, ...]:
    """Follow names from table to table, sometimes counting a whole one."""
    first = tables["a"].get(key)
    if first is None:
        return (more, "absent", key in tables["b"])
    if first == "all":
        return (more, "all", *sorted(tables["b"].items()))
    return (more, first, tables["b"].get(first, "nothing"))


TABLE = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["x", "y", "z", "all"]), max_size=3)


@pytest.mark.slow
@given(generations=st.lists(st.tuples(TABLE, TABLE, st.integers(0, 1)), min_size=1, max_size=8))
def test_what_is_remembered_is_what_would_be_built(
    generations: list[tuple[dict[str, str], dict[str, str], int]],
) -> None:
    memo: Watched[str, tuple[Any, ...]] = Watched()
    for first, second, common in generations:
        memo.start(common)
        tables = {"a": first, "b": second}
        for key in "xyz":
            assert memo.ensure(key, tables, partial(following, key=key, more=common)) == following(tables, key, common)


def test_nothing_is_built_again_that_looked_at_nothing_else() -> None:
    memo: Watched[str, object] = Watched()
    built: list[str] = []

    def build(seen: Tables) -> object:
        built.append("now")
        return following(seen, "x")

    generations: list[Tables] = [{"a": {"x": "y"}, "b": {"y": 1}}, {"a": {"x": "y", "z": "x"}, "b": {"y": 1, "x": 2}}]
    for tables in generations:
        memo.start()
        memo.ensure("k", tables, build)
    assert built == ["now"]
    memo.start()
    memo.ensure("k", {"a": {"x": "y"}, "b": {}}, build)
    assert built == ["now", "now"]
    memo.start()
    memo.start()
    memo.ensure("k", {"a": {"x": "y"}, "b": {}}, build)
    assert len(built) == 3
