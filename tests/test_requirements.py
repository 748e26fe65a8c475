"""Every id that a test claims to prove is in the catalogue, and ``untested.txt`` holds exactly the ids without a proof.

The test tree is read, not imported: a mark counts as a decorator, in ``pytestmark`` or in the ``marks`` of a parameter,
unless the same item is always skipped or expected to fail. Only files that pytest collects (``test_*.py``) are read.
"""

import ast
import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.requirements import REQUIREMENTS

TESTS: Final = Path(__file__).parent
CATALOGUE: Final = "requirements.py"
UNTESTED: Final = "untested.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What tests claim to prove."""

    proofs: Mapping[str, tuple[str, ...]]
    """Where each id is proved, as ``file:line``."""

    mistakes: tuple[str, ...] = ()
    """Marks that can prove nothing as they are written."""


def read_marks(folder: Path) -> Marks:
    """Read the marks of every test file below a folder."""
    found = [
        parse_marks(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("test_*.py"))
    ]
    ids = sorted({name for marks in found for name in marks.proofs})
    return Marks(
        proofs={name: tuple(place for marks in found for place in marks.proofs.get(name, ())) for name in ids},
        mistakes=tuple(mistake for marks in found for mistake in marks.mistakes),
    )


def parse_marks(file: str, source: str) -> Marks:
    """Read the marks of one file."""
    tree = ast.parse(source, file)
    proofs: dict[str, tuple[str, ...]] = {}
    mistakes = [f"{file}:{node.lineno}: {node.name} is not a test" for node in _marked_but_not_tests(tree)]
    for mark, counts in _marks_in(tree, counts=True):
        place = f"{file}:{mark.lineno}"
        ids = _literal_ids(mark)
        if ids is None:
            mistakes.append(f"{place}: write the ids as literals: pytest.mark.requirement('ES-1')")
        elif counts:
            proofs |= {name: (*proofs.get(name, ()), place) for name in ids}
    return Marks(proofs=proofs, mistakes=tuple(mistakes))


def differences(catalogue: Collection[str], proofs: Mapping[str, tuple[str, ...]], untested: str) -> tuple[str, ...]:
    """Say what to change, so that the list is the catalogue without the proved ids."""
    listed = untested.splitlines()
    want = sorted(set(catalogue) - set(proofs))
    found = [
        *(f"delete the line {name}: proved in {proofs[name][0]}" for name in sorted(set(listed) & set(proofs))),
        *(f"delete the line {name}: no such id" for name in sorted(set(listed) - set(catalogue) - set(proofs))),
        *(f"the proof of {name} is lost: bring it back (add the line only for a new id)"
          for name in want if name not in listed),
    ]  # fmt: skip
    if not found and untested != render_list(want):
        found.append("the lines are not sorted, not unique or not ended by a newline")
    return tuple(found)


def render_list(ids: Collection[str]) -> str:
    """Write the ids in order, one on each line."""
    return "".join(f"{name}\n" for name in sorted(ids))


def rewrite(folder: Path, catalogue: Collection[str], proofs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Write the list anew and return (); write nothing if proofs of committed ids are lost, and return those ids."""
    want = set(catalogue) - set(proofs)
    before = committed(folder, UNTESTED)
    if before is not None:
        source = committed(folder, CATALOGUE)
        known = set(catalogue) if source is None else set(catalogue_ids(source))
        lost = (want & known) - set(before.splitlines())
        if lost:
            return tuple(sorted(lost))
    (folder / UNTESTED).write_text(render_list(want), encoding="utf-8")
    return ()


def committed(folder: Path, name: str) -> str | None:
    """Return a file as the last commit has it; None if that commit has no such file."""
    return git(folder, "show", f"HEAD:./{name}") if git(folder, "ls-tree", "--name-only", "HEAD", f"./{name}") else None


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it prints; without git or a commit the test fails with git's own words."""
    # A hook sets variables that point git at the repository of the hook.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=False, text=True, env=environment
        )
    except OSError as error:
        pytest.fail(f"the list is compared with the last commit, but git does not start: {error}")
    if ran.returncode:
        pytest.fail(f"git {' '.join(arguments)}: {ran.stderr.strip()}")
    return ran.stdout


def catalogue_ids(source: str) -> tuple[str, ...]:
    """Read the ids from a catalogue's source, repeated ones as often as they stand there."""
    return tuple(
        key.value
        for table in ast.walk(ast.parse(source))
        if isinstance(table, ast.Dict)
        for key in table.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


def _marks_in(node: ast.AST, *, counts: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Find each requirement mark and whether the item it stands on runs."""
    counts = counts and not any(_is_mark(part, "skip", "xfail") for mark in _own_marks(node) for part in ast.walk(mark))
    if isinstance(node, ast.expr) and _is_mark(node.func if isinstance(node, ast.Call) else node, "requirement"):
        yield node, counts
    else:
        for child in ast.iter_child_nodes(node):
            yield from _marks_in(child, counts=counts)


def _own_marks(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that mark an item: a module, class, function or parameter."""
    match node:
        case ast.Call(keywords=keywords):
            yield from (keyword.value for keyword in keywords if keyword.arg == "marks")
        case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
            yield from decorators
        case ast.ClassDef(decorator_list=decorators, body=body):
            yield from decorators
            yield from _pytestmarks(body)
        case ast.Module(body=body):
            yield from _pytestmarks(body)
        case _:
            return


def _pytestmarks(body: list[ast.stmt]) -> Iterator[ast.expr]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield value
            case ast.AnnAssign(target=ast.Name(id="pytestmark"), value=ast.expr() as value):
                yield value
            case _:
                continue


def _marked_but_not_tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            expected = "Test" if isinstance(node, ast.ClassDef) else "test"
            marks = (part for decorator in node.decorator_list for part in ast.walk(decorator))
            if not node.name.startswith(expected) and any(_is_mark(part, "requirement") for part in marks):
                yield node


def _is_mark(node: ast.AST, *names: str) -> bool:
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="pytest"), attr="mark"), attr=name):
            return name in names
        case _:
            return False


def _literal_ids(mark: ast.expr) -> tuple[str, ...] | None:
    match mark:
        case ast.Call(args=[_, *_] as arguments, keywords=[]):
            ids = [part.value for part in arguments if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            return tuple(ids) if len(ids) == len(arguments) else None
        case _:
            return None


# The tree as it is


@pytest.fixture(scope="module")
def marks() -> Marks:
    return read_marks(TESTS)


@pytest.mark.slow
def test_every_id_that_a_test_claims_to_prove_is_in_the_catalogue(marks: Marks) -> None:
    unknown = [
        f"{places[0]}: {name} is {f'policy:{name} or threat:{name}' if f'policy:{name}' in REQUIREMENTS else 'unknown'}"
        for name, places in marks.proofs.items()
        if name not in REQUIREMENTS
    ]
    assert not unknown, "\n".join([f"not in tests/{CATALOGUE}:", *unknown])


def test_every_mark_is_written_so_that_it_can_prove_something(marks: Marks) -> None:
    assert marks.mistakes == ()


@pytest.mark.real
def test_the_untested_ids_are_exactly_those_without_a_proof(marks: Marks, request: pytest.FixtureRequest) -> None:
    proofs = marks.proofs
    if request.config.getoption("--update-golden"):
        lost = rewrite(TESTS, REQUIREMENTS, proofs)
        assert not lost, f"{UNTESTED} never grows; the proofs of these ids are lost: {', '.join(lost)}"
    found = differences(REQUIREMENTS, proofs, (TESTS / UNTESTED).read_text(encoding="utf-8"))
    assert not found, "\n".join([f"tests/{UNTESTED}:", *found])


def test_the_catalogue_has_each_id_once_with_one_short_line() -> None:
    ids = catalogue_ids((TESTS / CATALOGUE).read_text(encoding="utf-8"))
    assert sorted(ids) == sorted(REQUIREMENTS)
    spelling = re.compile(r"[A-Z]{2,3}-\d+|R6[AB]|(?:(?:policy|threat):)?[A-Z]\d{1,2}")
    assert [name for name in ids if not spelling.fullmatch(name)] == []
    assert [name for name, text in REQUIREMENTS.items() if not 10 < len(text) <= 110 or "\n" in text] == []


# The reading of marks


class Source(NamedTuple):
    text: str
    proofs: Mapping[str, tuple[str, ...]]
    mistakes: tuple[str, ...] = ()


LITERALS: Final = "write the ids as literals: pytest.mark.requirement('ES-1')"
SOURCES: Final = {
    "a decorator proves its id": Source("@pytest.mark.requirement('ES-1')\ndef test_a(): ...", {"ES-1": ("t.py:1",)}),
    "an async test proves its id": Source(
        "@pytest.mark.requirement('ES-1')\nasync def test_a(): ...", {"ES-1": ("t.py:1",)}
    ),
    "several arguments and decorators all count": Source(
        "@pytest.mark.requirement('A1', 'A2')\n@pytest.mark.requirement('A1')\ndef test_a(): ...",
        {"A1": ("t.py:1", "t.py:2"), "A2": ("t.py:1",)},
    ),
    "a class and its methods count": Source(
        "@pytest.mark.requirement('A1')\nclass TestA:\n  @pytest.mark.requirement('A2')\n  def test_a(self): ...",
        {"A1": ("t.py:1",), "A2": ("t.py:3",)},
    ),
    "pytestmark counts, alone and in a list": Source(
        "pytestmark = pytest.mark.requirement('A1')\nclass TestA:\n  pytestmark = [pytest.mark.requirement('A2')]",
        {"A1": ("t.py:1",), "A2": ("t.py:3",)},
    ),
    "a parameter counts": Source(
        "CASES = [pytest.param(1, marks=pytest.mark.requirement('J01'))]", {"J01": ("t.py:1",)}
    ),
    "text and comments do not count": Source(
        "# @pytest.mark.requirement('A1')\nX = \"@pytest.mark.requirement('A1')\"", {}
    ),
    "another mark does not count": Source("@pytest.mark.threat('J01')\ndef test_a(): ...", {}),
    "a skipped test proves nothing": Source(
        "@pytest.mark.skip(reason='later')\n@pytest.mark.requirement('A1')\ndef test_a(): ...", {}
    ),
    "a test that is expected to fail proves nothing": Source(
        "@pytest.mark.requirement('A1')\n@pytest.mark.xfail\ndef test_a(): ...", {}
    ),
    "a skipped module proves nothing": Source(
        "pytestmark = [pytest.mark.skip]\n@pytest.mark.requirement('A1')\ndef test_a(): ...", {}
    ),
    "a skipped parameter proves nothing and its neighbour does": Source(
        "pytest.param(1, marks=[pytest.mark.skip, pytest.mark.requirement('A1')])\n"
        "pytest.param(2, marks=[pytest.mark.requirement('A2')])",
        {"A2": ("t.py:2",)},
    ),
    "a test that only some machines skip counts": Source(
        "@pytest.mark.skipif(X, reason='x')\n@pytest.mark.requirement('A1')\ndef test_a(): ...", {"A1": ("t.py:2",)}
    ),
    "what is not a test is a mistake": Source(
        "@pytest.mark.requirement('A1')\ndef check_a(): ...", {"A1": ("t.py:1",)}, ("t.py:2: check_a is not a test",)
    ),
    "an id that is not a literal is a mistake": Source(
        "@pytest.mark.requirement(NAME)\ndef test_a(): ...", {}, (f"t.py:1: {LITERALS}",)
    ),
    "an id by keyword is a mistake": Source(
        "@pytest.mark.requirement(id='A1')\ndef test_a(): ...", {}, (f"t.py:1: {LITERALS}",)
    ),
    "no id is a mistake": Source("@pytest.mark.requirement()\ndef test_a(): ...", {}, (f"t.py:1: {LITERALS}",)),
    "a mark under another name is a mistake": Source(
        "proves = pytest.mark.requirement\n@proves('A1')\ndef test_a(): ...", {}, (f"t.py:1: {LITERALS}",)
    ),
}


@pytest.mark.parametrize("case", SOURCES.values(), ids=SOURCES.keys())
def test_parse_marks(case: Source) -> None:
    assert parse_marks("t.py", case.text) == Marks(proofs=case.proofs, mistakes=case.mistakes)


# The list


class Listing(NamedTuple):
    untested: str
    want: tuple[str, ...] = ()


LISTINGS: Final = {
    "exactly the ids without proof is right": Listing("A2\nA3\n"),
    "a proved id is to be deleted": Listing("A1\nA2\nA3\n", ("delete the line A1: proved in t.py:1",)),
    "an unknown id is to be deleted": Listing("A2\nA3\nZ9\n", ("delete the line Z9: no such id",)),
    "a missing id is a lost proof": Listing(
        "A3\n", ("the proof of A2 is lost: bring it back (add the line only for a new id)",)
    ),
    "order matters": Listing("A3\nA2\n", ("the lines are not sorted, not unique or not ended by a newline",)),
}


@pytest.mark.parametrize("case", LISTINGS.values(), ids=LISTINGS.keys())
def test_differences(case: Listing) -> None:
    assert differences(("A1", "A2", "A3"), {"A1": ("t.py:1",)}, case.untested) == case.want


AUTHOR: Final = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a repository whose last commit knows A1 and A2, of which A2 has no proof."""
    (tmp_path / CATALOGUE).write_text('REQUIREMENTS = {"A1": "one", "A2": "two"}', encoding="utf-8")
    (tmp_path / UNTESTED).write_text("A2\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", CATALOGUE, UNTESTED)
    git(tmp_path, *AUTHOR, "commit", "--quiet", "--no-verify", "--message", "start")
    return tmp_path


@pytest.mark.real
def test_an_update_deletes_what_is_proved(checkout: Path) -> None:
    assert rewrite(checkout, ("A1", "A2"), {"A1": (), "A2": ()}) == ()
    assert (checkout / UNTESTED).read_text(encoding="utf-8") == ""


@pytest.mark.real
def test_an_update_refuses_to_list_an_id_whose_proof_is_lost(checkout: Path) -> None:
    assert rewrite(checkout, ("A1", "A2"), {}) == ("A1",)
    assert (checkout / UNTESTED).read_text(encoding="utf-8") == "A2\n"


@pytest.mark.real
def test_an_update_refuses_a_lost_proof_that_was_added_by_hand(checkout: Path) -> None:
    (checkout / UNTESTED).write_text("A1\nA2\n", encoding="utf-8")
    assert rewrite(checkout, ("A1", "A2"), {}) == ("A1",)


@pytest.mark.real
def test_an_update_lists_an_id_that_is_new_in_the_catalogue(checkout: Path) -> None:
    assert rewrite(checkout, ("A1", "A2", "A3"), {"A1": ()}) == ()
    assert (checkout / UNTESTED).read_text(encoding="utf-8") == "A2\nA3\n"


@pytest.mark.real
def test_an_update_takes_no_id_for_new_if_the_last_commit_has_no_catalogue(checkout: Path) -> None:
    git(checkout, "rm", "--quiet", CATALOGUE)
    git(checkout, *AUTHOR, "commit", "--quiet", "--no-verify", "--message", "move the catalogue")
    assert rewrite(checkout, ("A1", "A2"), {}) == ("A1",)


@pytest.mark.real
def test_the_first_update_writes_the_list(checkout: Path) -> None:
    (checkout / "fresh").mkdir()
    assert rewrite(checkout / "fresh", ("A1",), {}) == ()
    assert (checkout / "fresh" / UNTESTED).read_text(encoding="utf-8") == "A1\n"


@pytest.mark.real
def test_an_update_without_a_commit_to_compare_with_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="git ls-tree"):
        rewrite(tmp_path, ("A1",), {})
    assert not (tmp_path / UNTESTED).exists()
