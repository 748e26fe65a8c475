"""Values of data as people may see them."""

from typing import Final

from authplane.cel.syntax.read_paths import render_key
from authplane.core.problems import printable
from authplane.core.text import shorten

_LONGEST: Final = 80


def path_text(path: tuple[str, ...]) -> str:
    """Write a path as an expression does."""
    return path[0] + "".join(render_key(each) for each in path[1:])


def written(value: object) -> str:
    """Write a plain value as the language does; of objects only that they are some, for anything may be in them."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{printable(value)}"'
        case list():
            return f"[{', '.join(written(each) for each in value[:_LONGEST])}]"
        case dict():
            return "{…}"
        case _:
            return printable(str(value))


def shown(value: object) -> str:
    """Write a value, but no more of it than people read."""
    return shorten(written(value), _LONGEST - 1)
