"""The house can be read by its names: one name, one meaning; each room says what it is for; none is crowded."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOM: Final = Path(__file__).parents[2] / "src" / "authplane"
MOST_MODULES: Final = 20
CONVENTIONS: Final = frozenset({"filter", "wire"})
"""Names that mean the same wherever they are: the filter of a package, and its way to and from messages."""


def test_no_two_modules_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOM.rglob("*.py")):
        # A command is named as the user types it, whatever else is called so.
        if path.stem not in {"__init__", "__main__", *CONVENTIONS} and path.parent != ROOM / "cli":
            places[path.stem].append(str(path.relative_to(ROOM)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_package_says_in_two_sentences_what_it_is_for() -> None:
    silent = []
    for path in sorted(ROOM.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if len(re.findall(r"[.!?](?:\s|$)", text)) < 2:
            silent.append(f"{path.parent.relative_to(ROOM)}: {text!r}")
    assert not silent, "\n".join(["say what it is for, what comes in and what goes out:", *silent])


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in ROOM.rglob("*.py")}
    assert [str(each.relative_to(ROOM)) for each in folders if not (each / "__init__.py").exists()] == []


def test_no_room_is_crowded() -> None:
    counted = {folder: len(list(folder.glob("*.py"))) - 1 for folder in {path.parent for path in ROOM.rglob("*.py")}}
    assert {str(folder.relative_to(ROOM)): n for folder, n in counted.items() if n > MOST_MODULES} == {}
