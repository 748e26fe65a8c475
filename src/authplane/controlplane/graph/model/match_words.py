"""Descriptions of matches: different matches have different descriptions."""

import json
import re
from collections.abc import Iterator
from typing import Final, assert_never

from authplane.controlplane.graph.model.match_model import (
    Exact,
    HeaderMatch,
    Match,
    PathMatch,
    Prefix,
    QueryMatch,
    Regex,
    Segments,
    TextTest,
)

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]+")


def match_words(match: Match) -> str:
    """Describe a match in short: ``/api``, ``^/api``, ``=/api``, ``~"/v[0-9]"``, and further conditions in brackets."""
    conditions = ", ".join(condition_words(match))
    return f"{_path_words(match.path)}[{conditions}]" if conditions else _path_words(match.path)


def condition_words(match: Match) -> Iterator[str]:
    """Describe the conditions of a match beside the path."""
    for header in match.headers:
        yield _header_words(header)
    for parameter in match.query:
        yield _query_words(parameter)


def _path_words(path: PathMatch) -> str:
    match path:
        case Prefix(text):
            return text
        case Segments(text):
            return f"^{text}"
        case Exact(text):
            return f"={text}"
        case Regex(text):
            return f"~{json.dumps(text)}"
        case _:
            assert_never(path)


def _header_words(header: HeaderMatch) -> str:
    test = f"not {header.test.value}" if header.inverted else header.test.value
    words = [header.name, test]
    if header.test is not TextTest.PRESENT:
        words.append(json.dumps(header.text))
    if header.ignore_case:
        words.append("in any case")
    if header.missing_is_empty:
        words.append("or missing")
    return " ".join(words)


def _query_words(parameter: QueryMatch) -> str:
    name = parameter.name if _PLAIN.fullmatch(parameter.name) else json.dumps(parameter.name)
    words = [f"?{name}", parameter.test.value]
    if parameter.test is not TextTest.PRESENT:
        words.append(json.dumps(parameter.text))
    if parameter.ignore_case:
        words.append("in any case")
    return " ".join(words)
