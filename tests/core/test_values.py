"""Values are those of the standard library, made later."""

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from authplane.core import values


def define(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """Define the same classes with one decorator or the other."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        """Some fields."""

        a: int
        b: str = "x"
        c: tuple[int, ...] = dataclasses.field(default=(), repr=False)
        d: list[int] = dataclasses.field(default_factory=list, compare=False)
        shared: ClassVar[int] = 3

    @dataclass(frozen=True, slots=True)
    class Placed:
        one: object
        two: object = 2

    @dataclass(frozen=True, slots=True)
    class Single:
        one: object

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(frozen=True)
    class Derived(Placed):
        three: int = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Computed:
        base: int
        twice: int = dataclasses.field(init=False)
        fixed: int = dataclasses.field(init=False, default=7)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.base)

    @dataclass(frozen=True, slots=True)
    class OwnHash:
        one: int

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True, slots=True)
    class OwnEquality:  # noqa: PLW1641 (the hash is made)
        one: int

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Awkward:
        put: int
        absent: int = 1
        make_absent: list[int] = dataclasses.field(default_factory=list)
        other: tuple[int, ...] = ()
        hash: int = 2

    @dataclass(slots=True)
    class Mutable:
        one: int = 1

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        one: int

    return {name: made for name, made in locals().items() if name != "dataclass"}


OURS, THEIRS = define(values.dataclass), define(dataclasses.dataclass)
CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "by name": ("Named", (), {"a": 1}),
    "by name, all": ("Named", (), {"a": 1, "b": "y", "c": (1,), "d": [2]}),
    "one is missing": ("Named", (), {}),
    "one is unknown": ("Named", (), {"a": 1, "z": 2}),
    "by place, but only names are taken": ("Named", (1,), {}),
    "by place": ("Placed", (1,), {}),
    "too many": ("Placed", (1, 2, 3), {}),
    "one": ("Single", ("a",), {}),
    "what cannot be hashed": ("Single", ([],), {}),
    "none": ("Empty", (), {}),
    "derived": ("Derived", (1,), {"three": 4}),
    "computed": ("Computed", (), {"base": 2}),
    "a hash of its own": ("OwnHash", (1,), {}),
    "an equality of its own": ("OwnEquality", (1,), {}),
    "names that the constructor could use itself": ("Awkward", (), {"put": 1, "absent": 5}),
    "not frozen": ("Mutable", (), {}),
    "with an order": ("Ordered", (1,), {}),
}


def outcome(compute: Callable[[], Any]) -> str:
    """Return what comes out, or what is raised, as text; a hash only as whether there is one."""
    try:
        return repr(compute())
    except Exception as error:  # noqa: BLE001 (whatever it is, both raise it)
        return f"{type(error).__name__}: {error}"


def facts(classes: dict[str, Any], name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> list[str]:
    def make() -> Any:
        return classes[name](*positional, **named)

    made = outcome(make)
    if "Error" in made:
        return [made]
    value, same = make(), make()
    return [
        made,
        outcome(lambda: value == same),
        outcome(lambda: value == copy.copy(value)),
        outcome(lambda: value == copy.deepcopy(value)),
        outcome(lambda: value == object()),
        outcome(lambda: hash(value) == hash(copy.copy(value))),
        outcome(lambda: dataclasses.asdict(value)),
        outcome(lambda: dataclasses.replace(value) == value),
        outcome(lambda: type(value).__match_args__),
        outcome(lambda: hasattr(value, "__dict__")),
        *(outcome(partial(setattr, value, each.name, 1)) for each in dataclasses.fields(value)),
        *(outcome(partial(delattr, value, each.name)) for each in dataclasses.fields(value)),
    ]


@pytest.mark.parametrize(("name", "positional", "named"), CALLS.values(), ids=CALLS.keys())
def test_a_value_does_what_one_of_the_standard_library_does(
    name: str, positional: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert facts(OURS, name, positional, named) == facts(THEIRS, name, positional, named)


@pytest.mark.parametrize("name", OURS)
def test_the_parameters_of_a_class_can_be_seen_before_the_first_value(name: str) -> None:
    fresh, theirs = define(values.dataclass)[name], THEIRS[name]
    shown = inspect.signature(fresh).replace(return_annotation=None)
    want = inspect.signature(theirs).replace(return_annotation=None)
    assert [(each.name, each.kind) for each in shown.parameters.values()] == [
        (each.name, each.kind) for each in want.parameters.values()
    ]


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()


def test_a_value_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Kept(a=1, b=(2,)))) == Kept(a=1, b=(2,))  # noqa: S301 (our own bytes)


def test_a_value_survives_pickling_before_a_constructor_is_written() -> None:
    kept = pickle.dumps(Kept(a=1))
    fresh = define(values.dataclass)["Placed"]
    raw = fresh.__new__(fresh)
    raw.__setstate__([1, 2])
    assert (raw.one, raw.two) == (1, 2)
    assert pickle.loads(kept) == Kept(a=1)  # noqa: S301 (our own bytes)


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_value_matches_patterns(classes: dict[str, Any]) -> None:
    def told(value: object) -> str:
        match value:
            case classes_named.Placed(1, two):
                return f"by place, {two}"
            case classes_named.Named(a=1, b=b):
                return f"by name, {b}"
            case _:
                return "neither"

    classes_named = SimpleNamespace(**classes)
    given = (classes["Placed"](1), classes["Named"](a=1, b="y"), classes["Placed"](2), classes["Derived"](1))
    assert [told(each) for each in given] == ["by place, 2", "by name, y", "neither", "by place, 2"]


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_value_is_replaced_in_part(classes: dict[str, Any]) -> None:
    named, computed = classes["Named"](a=1, b="y", d=[1]), classes["Computed"](base=2)
    other = dataclasses.replace(named, a=2)
    assert (other.a, other.b, other.d) == (2, "y", [1])
    assert named.a == 1
    assert dataclasses.replace(computed, base=3).twice == 6
    with pytest.raises(TypeError):
        dataclasses.replace(named, z=1)
    with pytest.raises(ValueError, match="twice"):
        dataclasses.replace(computed, twice=1)


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_value_that_contains_itself_has_a_text(classes: dict[str, Any]) -> None:
    held: list[object] = []
    value = classes["Single"](held)
    held.append(value)
    assert repr(value) == f"{classes['Single'].__qualname__}(one=[...])"


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_what_a_factory_makes_is_made_for_each_value(classes: dict[str, Any]) -> None:
    first, second = classes["Named"](a=1), classes["Named"](a=1)
    assert first.d is not second.d
    first.d.append(1)
    assert second.d == []
    assert first == second


@pytest.mark.parametrize("classes", [OURS, THEIRS], ids=["ours", "theirs"])
def test_values_of_different_fields_or_classes_differ(classes: dict[str, Any]) -> None:
    nan = float("nan")
    assert classes["Placed"](1, 2) != classes["Placed"](1, 3)
    assert classes["Placed"](1, 2) != classes["Derived"](1, 2)
    assert classes["Single"](1) != classes["OwnHash"](1)
    assert classes["Single"](nan) == classes["Single"](nan)
    assert classes["Empty"]() == classes["Empty"]()
    assert len({classes["Placed"](1, 2), classes["Placed"](1, 2), classes["Placed"](2, 2)}) == 2


def test_a_class_that_derives_from_ours_calls_its_constructor() -> None:
    @values.dataclass(frozen=True, slots=True)
    class Base:
        one: int

    class Child(Base):
        def __init__(self) -> None:
            super().__init__(1)

    assert (Child().one, Child().one, Base(2).one) == (1, 1, 2)
    assert Child() == Child()
    assert Child() != Base(1)


def test_a_field_that_is_only_for_the_constructor_is_refused() -> None:
    with pytest.raises(TypeError, match="InitVar"):

        @values.dataclass(frozen=True, slots=True)
        class _Refused:
            one: dataclasses.InitVar[int]


def test_a_default_that_all_values_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @values.dataclass(frozen=True, slots=True)
        class _Refused:
            one: list[int] = []  # noqa: RUF012 (that is what is refused)


def test_many_threads_make_the_first_value() -> None:
    fresh = define(values.dataclass)["Placed"]
    ready = threading.Barrier(8)

    def make(number: int) -> Any:
        ready.wait(30)
        return fresh(number)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(each.one for each in pool.map(make, range(8))) == list(range(8))


def test_an_equality_is_written_with_the_first_comparison() -> None:
    fresh = define(values.dataclass)["Named"]
    late = fresh.__eq__
    assert fresh(a=1) == fresh(a=1)
    assert fresh.__eq__ is not late
    assert fresh(a=1) != fresh(a=2)
    assert hash(fresh(a=1)) == hash(fresh(a=1))


def test_a_constructor_is_written_with_the_first_value() -> None:
    fresh = define(values.dataclass)["Named"]
    late = fresh.__init__
    fresh(a=1)
    first = fresh.__init__
    fresh(a=2)
    assert late is not first
    assert fresh.__init__ is first
