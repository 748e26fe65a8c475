"""Finds the place of a field in its document, and of a character in the text of a field."""

from typing import Final

from authplane.core.problems import Inside, Path
from authplane.resources.yaml.nodes import Fields, Items, Node, Scalar, parse_nodes

_BLANKS: Final = " \t\r\n"
_PLAIN_ESCAPES: Final = '"\\/'
"""What stands for itself behind a backslash."""

_LONG_FORM: Final = "expression"
"""The field of an expression with settings of its own; its problems are those of the field around it."""


def locate(root: Node, path: Path) -> tuple[int, int]:
    """Return line and column of the field, or of the nearest thing around it that exists.

    The place of a mapping's field is its key; the place of a list item is its beginning. A field of YAML in a block of
    text has the line in the block, and column 1: the block does not tell how far it is indented.
    """
    node, line, column = root, root.line, root.column
    for index, step in enumerate(path):
        if isinstance(node, Fields) and isinstance(step, str) and step in node.entries:
            node, line, column = node.entries[step]
        elif isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
            line, column = node.line, node.column
        elif isinstance(node, Scalar) and node.literal and (inner := parse_nodes(node.text).root) is not None:
            return node.line + locate(inner, path[index:])[0], 1
        else:
            break
    return line, column


def locate_inside(document: str, root: Node, path: Path, inside: Inside) -> tuple[int, int] | None:
    """Return line and column of a character of a field's text.

    None if the document has no such text, or writes it with escapes that change its length before the character.
    """
    node = root
    for step in path:
        if isinstance(node, Fields) and isinstance(step, str) and step in node.entries:
            node = node.entries[step].node
        elif isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
        else:
            return None
    if isinstance(node, Fields) and _LONG_FORM in node.entries:
        node = node.entries[_LONG_FORM].node
    if not isinstance(node, Scalar):
        return None
    before = node.text.split("\n")[: inside.line - 1]
    offset = sum(len(each) + 1 for each in before) + inside.column - 1
    at = _walk(document, _start(document, node.line, node.column), node.text, offset)
    if at is None:
        return None
    return document.count("\n", 0, at) + 1, at - document.rfind("\n", 0, at)


def _start(document: str, line: int, column: int) -> int:
    """Return the offset of the place where a scalar begins: a quotation mark, the header of a block, or its text."""
    start = 0
    for _ in range(line - 1):
        start = document.index("\n", start) + 1
    return start + column - 1


def _walk(document: str, at: int, text: str, offset: int) -> int | None:
    """Return where the character of the text is, of a scalar that begins at ``at``.

    Blanks and line breaks of the text are those of the document, however it folds them.
    """
    first = document[at : at + 1]
    quote = first if first in {"'", '"'} else ""
    if quote:
        at += 1
    elif first in {"|", ">"}:
        at = document.find("\n", at) + 1
    done, end = 0, at
    while done < len(text):
        at = _skip_blanks(document, at) if text[done] in _BLANKS or not done else at
        done = _skip_blanks(text, done)
        if offset < done:
            return end
        if done == len(text):
            break
        width = _width(document, at, quote, text[done])
        if not width:
            return None
        if offset == done:
            return at
        at, done = at + width, done + 1
        end = at
    return end if offset <= len(text) else None


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _width(document: str, at: int, quote: str, wanted: str) -> int:
    """Return how many characters the document needs to write the wanted one; 0 if it writes another."""
    written = document[at : at + 2]
    if quote == "'" and written[:1] == "'":
        return 2 if written == "''" and wanted == "'" else 0
    if quote == '"' and written[:1] == "\\":
        return 2 if written[1:] == wanted and wanted in _PLAIN_ESCAPES else 0
    return 1 if written[:1] == wanted else 0
