"""Building only what has changed."""

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from authplane.controlplane.graph.memo.memo import Memo, Tables


def following(tables: Tables, key: str, more: int = 0) -> tuple[Any, ...]:
    """Follow names from table to table, sometimes counting a whole one."""
    first = tables["a"].get(key)
    if first is None:
        return (more, "absent", key in tables["b"])
    if first == "all":
        return (more, "all", *sorted(tables["b"].items()))
    return (more, first, tables["b"].get(first, "nothing"))


TABLE = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["x", "y", "z", "all"]), max_size=3)


@given(generations=st.lists(st.tuples(TABLE, TABLE, st.integers(0, 1)), min_size=1, max_size=8))
def test_what_is_remembered_is_what_would_be_built(
    generations: list[tuple[dict[str, str], dict[str, str], int]],
) -> None:
    memo: Memo[str, tuple[Any, ...]] = Memo()
    for first, second, common in generations:
        memo.start(common)
        tables = {"a": first, "b": second}
        for key in "xyz":
            assert memo.ensure(key, tables, partial(following, key=key, more=common)) == following(tables, key, common)


def test_nothing_is_built_again_that_looked_at_nothing_else() -> None:
    memo: Memo[str, object] = Memo()
    built: list[str] = []

    def build(seen: Tables) -> object:
        built.append("now")
        return following(seen, "x")

    memo.start(0)
    generations: list[Tables] = [{"a": {"x": "y"}, "b": {"y": 1}}, {"a": {"x": "y", "z": "x"}, "b": {"y": 1, "x": 2}}]
    for tables in generations:
        memo.ensure("k", tables, build)
    assert built == ["now"]
    memo.ensure("k", {"a": {"x": "y"}, "b": {}}, build)
    assert built == ["now", "now"]
    memo.keep({})
    memo.ensure("k", {"a": {"x": "y"}, "b": {}}, build)
    assert len(built) == 3
