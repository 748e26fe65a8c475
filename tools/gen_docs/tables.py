"""Tables of Markdown."""

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    written = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(line.replace("|  |", "| |").replace("| --- ", "|---").replace("--- |", "---|") for line in written)


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables of a text, without the lines below the heads."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def escaped(text: str) -> str:
    """Return plain text so that Markdown shows it as it is, in a cell too."""
    for mark in ("\\", "*", "|", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text
