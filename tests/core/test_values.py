"""Values are those of the standard library, made later."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from functools import partial
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


def test_a_constructor_is_written_with_the_first_value() -> None:
    fresh = define(values.dataclass)["Named"]
    late = fresh.__init__
    fresh(a=1)
    first = fresh.__init__
    fresh(a=2)
    assert late is not first
    assert fresh.__init__ is first
