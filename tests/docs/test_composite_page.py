"""The page about composite filters says what the code does."""

import re
from typing import Any, Final

from tests.support.pages import ROOT, blocks, read

from authplane.cel.calls.call_vocabulary import CLIENT_CALLS, LARGEST_PATTERN, SERVER_CALLS
from authplane.cel.check.forbidden_parts import DEEPEST
from authplane.cel.check.program import LARGEST_TEXT
from authplane.cel.syntax.vocabulary import OPERATORS
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.composite.filter import NO_MATCH, Composite
from authplane.dataplane.filters.composite.wire import parse_composite
from authplane.dataplane.filters.registry import MOST_DEPTH, Packed, Scope, Trust
from authplane.dataplane.filters.standard_filters import standard_registry

PAGE: Final = ROOT / "docs" / "how-to" / "choose-filters-per-call.md"
TEXT: Final = " ".join(read(PAGE).split())


def test_the_program_on_the_page_makes_a_filter() -> None:
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 (our own page)
    config = names["config"]
    scope = Scope(side=Side.SERVER, trust=Trust(), registry=standard_registry())
    found = parse_composite(Packed(config.DESCRIPTOR.full_name, config.SerializeToString()), scope)
    assert isinstance(found, Composite)
    assert found.matcher is not None


def test_the_page_lists_the_variables() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in read(PAGE).splitlines()]
    listed = [row for row in rows if row[0].startswith(("`request.", "`xds.", "`source.", "`connection."))]
    assert listed == [[f"`{each.name}`", each.kind, each.about] for each in SERVER_CALLS.variables]
    only = {each.name.partition(".")[0] for each in SERVER_CALLS.variables} - CLIENT_CALLS.roots
    assert only == {"source", "connection"}


def test_the_page_lists_the_functions() -> None:
    (functions,) = re.findall(r"- Functions: (.*?); and the macro `has`", TEXT)
    assert set(re.findall(r"`(\w+)`", functions)) == SERVER_CALLS.functions - OPERATORS
    assert OPERATORS - SERVER_CALLS.functions == {"_?_:_"}


def test_the_page_states_the_limits_and_what_callers_are_told() -> None:
    assert f"at most {MOST_DEPTH} levels deep" in TEXT
    assert f"at most {LARGEST_TEXT:,} bytes. It is nested at most {DEEPEST} levels deep" in TEXT
    assert f"at most {LARGEST_PATTERN} instructions" in TEXT
    assert f"UNAVAILABLE: `{NO_MATCH.message}`" in TEXT
