"""Pages with regions that are generated."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tools.gen_docs.command_tables import command_index, command_text, shared_options
from tools.gen_docs.field_tables import field_tables, kind_index
from tools.gen_docs.metric_tables import metric_table
from tools.gen_docs.reason_index import reason_index

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"

_REGION = re.compile(r"^<!-- generated: (?P<what>[^\n]+) -->\n(?P<text>.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
_MAKERS: Final[Mapping[str, Callable[[str, str], str]]] = MappingProxyType(
    {
        "command": lambda name, _: command_text(name),
        "commands": lambda _name, _kept: command_index(),
        "shared options": lambda _name, _kept: shared_options(),
        "fields of": field_tables,
        "kinds": lambda _name, kept: kind_index(kept),
        "metrics of": metric_table,
        "reasons": lambda _name, _kept: reason_index(REFERENCE / "reasons"),
    }
)


def regenerated(text: str) -> str:
    """Return a page with its regions written anew."""
    return _REGION.sub(_region, text)


def written_by_hand(text: str) -> str:
    """Return a page without its regions."""
    return _REGION.sub("", text)


def regions(text: str) -> list[str]:
    """Return what the regions of a page are generated from."""
    return [found["what"] for found in _REGION.finditer(text)]


def _region(found: re.Match[str]) -> str:
    what = found["what"]
    [maker] = [each for each in _MAKERS if what == each or what.startswith(f"{each} ")][-1:]
    body = _MAKERS[maker](what.removeprefix(maker).strip(), found["text"])
    return f"<!-- generated: {what} -->\n\n{body.strip()}\n\n<!-- end -->"
