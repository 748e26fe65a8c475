"""What mutation testing changes, and what it leaves alone."""

from typing import Final

import pytest
from tools.mutation.mutants import mutants_of

CHANGES: Final = {
    "a comparison, and its boundary": ("x = a < b", ["x = (a >= b)", "x = (a <= b)"]),
    "a chain of conditions": ("x = a and b", ["x = (a or b)"]),
    "not": ("x = not a", ["x = (a)"]),
    "branches": ("x = a if b else c", ["x = (c if b else a)"]),
    "a number": ("x = 41", ["x = (42)"]),
    "a truth value": ("x = True", ["x = (False)"]),
    "a text": ("x = 'ab'", ["x = ('')"]),
    "a table": ("x = {a, b}", ["x = ({b})", "x = ({a})"]),
    "a mapping": ("x = {a: b, c: d}", ["x = ({c: d})", "x = ({a: b})"]),
    "behind other letters": ("x = 'é ü', 1", ["x = ((1,))", "x = (('é ü',))", "x = (''), 1", "x = 'é ü', (2)"]),
    "no sentence for people": ("x = 'this is wrong'", []),
    "no docstring": ("'''1 2 3 4'''", []),
    "no annotation": ("x: 'Literal[1]'", []),
    "nothing that is raised": ("raise ValueError(1)", []),
    "no pattern": ("match x:\n  case 1: pass", []),
    "no union of types": ("x = Deny | Allow", []),
    "no name for a type": ("X: TypeAlias = Mapping[str, int] | tuple[str, ...]", []),
    "no variable for types": ("S = TypeVar('S', contravariant=True)", []),
    "no type that is given": ("x = list[tuple[str, int]]()", []),
    "not how a value is shown": ("x = field(default=1, repr=False)", ["x = field(default=(2), repr=False)"]),
    "no check of lengths": ("x = zip(a, b, strict=True)", []),
}


@pytest.mark.parametrize(("text", "want"), CHANGES.values(), ids=CHANGES.keys())
def test_what_is_changed(text: str, want: list[str]) -> None:
    assert [mutant.source for mutant in mutants_of("m.py", text)] == want


def test_a_mutant_says_what_it_changes() -> None:
    [mutant] = mutants_of("m.py", "\nx = 41\n")
    assert str(mutant) == "m.py:2 changed number: 41 → 42"
