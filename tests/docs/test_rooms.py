"""The pages that describe the house name rooms and modules that exist, and journeys pass through each room once."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.support.pages import ROOT, blocks, name_of, read

HOUSE = ROOT / "src" / "authplane"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
JOURNEYS = sorted((ROOT / "docs" / "journeys").glob("*.md"))
GUIDES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", ARCHITECTURE, *JOURNEYS]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
PRODUCTS = ("controlplane", "authserver", "dataplane")
"""The folders whose subfolders are rooms of their own."""
ROOMS = {path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists()}
FOREIGN = {"envoy/__init__.py", "__init__.py"}
"""Files of other distributions."""
TOPS = ROOMS | {"bench", "docs", "examples", "tests", "tools"}

_CODE = re.compile(r"`(?P<text>[^`\n]+)`")
_PATH = re.compile(r"(?P<path>[\w.]+(?:/[\w.]+)*/?)(?:: (?P<name>[\w.]+))?")
_HOP = re.compile(
    r"^(?P<number>\d+)\. \*\*(?P<room>[^*]+)\*\*(?P<text>.*?)(?=^\d+\. |\n\n|\Z)", re.MULTILINE | re.DOTALL
)
_DRAWN = re.compile(r"^(?P<indent> *)(?P<folders>(?:[a-z_]+/[ ,]*)+)", re.MULTILINE)


def named(text: str) -> Iterator[tuple[str, str | None]]:
    """Return the paths that a text names as code, each with what it names in the module."""
    for found in _CODE.finditer(text):
        path = _PATH.fullmatch(found["text"])
        if not path or path["path"] in FOREIGN:
            continue
        if path["path"].split("/")[0] in TOPS or path["path"].endswith(".py"):
            yield path["path"], path["name"]


def place_of(path: str) -> Path:
    return (HOUSE if path.split("/", maxsplit=1)[0] in ROOMS else ROOT) / path


def defines(module: Path, name: str) -> bool:
    """Tell whether a module defines a name, such as ``Folder.scan``."""
    body: Iterable[ast.stmt] = ast.parse(module.read_text(encoding="utf-8")).body
    for part in name.split("."):
        bodies = [
            each.body
            for each in body
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and each.name == part
        ]
        if not bodies:
            return False
        [body] = bodies
    return True


def missing(text: str) -> list[str]:
    """Return what a text names and the repository does not have."""
    return [
        path if name is None else f"{path}: {name}"
        for path, name in named(text)
        if not place_of(path).exists() or (name is not None and not defines(place_of(path), name))
    ]


def room_of(path: str) -> str:
    """Return the room that a path is in: a stage of a product, or a shared room."""
    parts = path.strip("/").split("/")
    return "/".join(parts[:2]) if parts[0] in PRODUCTS else parts[0]


def hops(text: str) -> list[tuple[str, str]]:
    """Return the hops of a journey in order, each as its room and its text."""
    return [(found["room"].strip("`"), found["text"]) for found in _HOP.finditer(text)]


def faults(text: str) -> list[str]:
    """Return what is wrong with a journey: hops that are out of order, or that name another room than their own."""
    found = [int(each["number"]) for each in _HOP.finditer(text)]
    wrong = [] if found == list(range(1, len(found) + 1)) else [f"hops are numbered {found}"]
    entered: set[str] = set()
    for room, told in hops(text):
        if room.split("/")[0] not in ROOMS:
            wrong += [f"{path} is named outside of our rooms, by {room}" for path, _ in named(told)]
            continue
        if room != room_of(room) or room in PRODUCTS or not (HOUSE / room).is_dir():
            wrong.append(f"{room} is no room")
        if room in entered:
            wrong.append(f"{room} is entered again")
        entered.add(room)
        wrong += [f"{room} names {path}" for path, _ in named(told) if room_of(path) != room]
    return wrong


def drawn(page: Path) -> set[str]:
    """Return the folders that the picture of a page shows, with their subfolders."""
    [picture] = [block.text for block in blocks(page) if block.text.startswith("src/authplane/\n")]
    shown: set[str] = set()
    above = ""
    for found in _DRAWN.finditer(picture.partition("\n")[2]):
        folders = re.findall(r"[a-z_]+(?=/)", found["folders"])
        if len(found["indent"]) <= 2:
            above = folders[-1]
            shown.update(folders)
        else:
            shown.update(f"{above}/{folder}" for folder in folders)
    return shown


@pytest.mark.parametrize("page", [*GUIDES, *DECISIONS], ids=name_of)
def test_every_room_and_module_that_a_page_names_exists(page: Path) -> None:
    assert missing(read(page)) == []


@pytest.mark.parametrize("page", JOURNEYS, ids=name_of)
def test_a_journey_enters_each_room_once(page: Path) -> None:
    assert faults(read(page)) == []
    assert len([room for room, _ in hops(read(page)) if room.split("/")[0] in ROOMS]) >= 3


def test_the_picture_is_the_folders() -> None:
    shown = drawn(ARCHITECTURE)
    assert {folder for folder in shown if "/" not in folder} == ROOMS
    stages = {
        f"{product}/{path.name}"
        for product in PRODUCTS
        for path in (HOUSE / product).iterdir()
        if (path / "__init__.py").exists()
    }
    assert {folder for folder in shown if folder.split("/")[0] in PRODUCTS and "/" in folder} == stages
    assert [folder for folder in shown if not (HOUSE / folder).is_dir()] == []


def test_the_page_of_the_architecture_links_to_every_journey() -> None:
    assert [page.name for page in JOURNEYS if f"(../journeys/{page.name})" not in read(ARCHITECTURE)] == []


@pytest.mark.parametrize("package", sorted(HOUSE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_a_package_says_what_it_is_for_and_what_comes_in_and_goes_out(package: Path) -> None:
    said = ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""
    purpose, _, exchange = said.partition("\n\n")
    assert purpose.endswith(".")
    assert exchange.endswith(".") or package.parent == HOUSE


def test_no_two_modules_have_one_name() -> None:
    modules = Counter(path.stem for path in HOUSE.rglob("*.py") if path.stem != "__init__")
    # Each filter of the data plane has both, and each package that knows messages has a `wire`.
    assert {name for name, count in modules.items() if count > 1} <= {"wire", "filter"}


JOURNEY = """
1. **Envoy** sends bytes.
2. **`sources`** reads them (`sources/runtime/read_folder.py: Folder.scan`).
3. **`controlplane/graph`** builds `controlplane/graph/build.py: build_graph`.
"""


def test_what_a_page_gets_wrong_is_found() -> None:
    assert (missing(JOURNEY), faults(JOURNEY)) == ([], [])
    gone = JOURNEY.replace("Folder.scan", "Folder.skim").replace("graph/build.py", "graph/built.py")
    assert missing(gone) == ["sources/runtime/read_folder.py: Folder.skim", "controlplane/graph/built.py: build_graph"]
    again = JOURNEY + "4. **`sources`** reads again.\n"
    assert faults(again) == ["sources is entered again"]
    other = JOURNEY.replace("reads them", "reads `resources/yaml/nodes.py`")
    assert faults(other) == ["sources names resources/yaml/nodes.py"]
    assert faults(JOURNEY.replace("3. ", "4. ")) == ["hops are numbered [1, 2, 4]"]
    assert faults(JOURNEY.replace("**`controlplane/graph`**", "**`controlplane`**"))[0] == "controlplane is no room"
