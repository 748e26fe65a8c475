"""The pages of the documentation, taken apart."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
    key=lambda page: page.parts,
)

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (?P<words>.+)$", re.MULTILINE)
_HERE = re.compile(r"<<'(?P<end>\w+)'$", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A block of code."""

    page: Path
    language: str
    text: str


class Step(NamedTuple):
    """A command and, where the page shows it, what it prints."""

    page: Path
    command: str
    output: str | None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    return [Block(page, found["language"], found["text"]) for found in _FENCE.finditer(read(page))]


def links(page: Path) -> list[str]:
    """Return the relative targets of links, outside of code."""
    targets = [found["target"] for found in _LINK.finditer(_FENCE.sub("", read(page)))]
    return [target for target in targets if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Return the anchors of headings as forges make them."""
    headings = (found["words"].lower() for found in _HEADING.finditer(_FENCE.sub("", read(page))))
    return {re.sub(r"[^\w\- ]", "", words).replace(" ", "-") for words in headings}


def commands(text: str) -> list[str]:
    """Return the commands of a block; one goes on while a quotation or a here-document is open."""
    found: list[str] = []
    for line in text.splitlines():
        if found and _is_open(found[-1]):
            found[-1] += f"\n{line}"
        elif line and not line.startswith("#"):
            found.append(line)
    return found


def _is_open(command: str) -> bool:
    here = _HERE.search(command)
    if here is not None:
        return command.splitlines()[-1] != here["end"]
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return command.endswith("\\")


def steps(page: Path) -> Iterator[Step]:
    """Return the commands of ``sh`` blocks, and those of ``console`` blocks with what they print."""
    for block in blocks(page):
        text = block.text.replace("\\\n", " ")
        if block.language == "sh":
            yield from (Step(page, command, None) for command in commands(text))
        elif block.language == "console":
            for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, output = piece.partition("\n")
                yield Step(page, command, output or None)


def shows(shown: str, printed: str) -> bool:
    """Tell whether a page shows what is printed; ``…`` stands for what it leaves out."""
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed, re.DOTALL) is not None
