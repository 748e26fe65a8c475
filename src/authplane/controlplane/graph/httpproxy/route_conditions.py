"""Conditions of routes and includes, and how those of an include join those of the routes behind it."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from authplane.controlplane.graph.model.canonical_paths import path_problem
from authplane.controlplane.graph.model.envoy_regexes import regex_problem
from authplane.controlplane.graph.model.header_names import is_header_name
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
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import HeaderCondition, MatchCondition, QueryParameterCondition

_PATH: Final = "PathMatchConditionsNotValid"
_HEADER: Final = "HeaderMatchConditionsNotValid"
_QUERY: Final = "QueryParameterMatchConditionsNotValid"
_BAD_REGEX: Final = "invalid regular expression specified for 'regex' condition"
_LONGEST_PARAMETER: Final = 1024
"""Bytes of a name that Envoy takes; a longer one would cost every route of the table."""
_PSEUDO_HEADERS: Final = frozenset({":authority", ":method", ":path", ":scheme"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The requirements of a block of conditions; an empty block matches everything."""

    path: PathMatch | None = None
    headers: tuple[HeaderMatch, ...] = ()
    query: tuple[QueryMatch, ...] = ()


EVERYTHING: Final = Conditions()


def include_conditions(written: Sequence[MatchCondition], problems: Problems) -> Conditions | None:
    """Read the conditions of an include, whose path can only be a prefix; None if they cannot be used."""
    found = problems.error_count
    for field in ("exact", "regex"):
        if any(getattr(condition, field) for condition in written):
            with problems.at("conditions"):
                problems.add(_PATH, f"include: {field} conditions are not allowed in includes block. Use prefix.")
    conditions = _read(written, "include", problems)
    return None if problems.error_count > found else conditions


def route_match(above: Conditions, written: Sequence[MatchCondition], problems: Problems) -> Match | None:
    """Read the conditions of a route and put them below those of the includes that lead to it; None if unusable."""
    if not (written or above.headers or above.query):
        return match_of(above)
    found = problems.error_count
    conditions = joined(above, _read(written, "route", problems))
    if problems.error_count > found:
        return None
    with problems.at("conditions"):
        _require_no_contradiction(conditions, problems)
        if isinstance(conditions.path, Regex) and (wrong := regex_problem(conditions.path.path)):
            problems.add(_PATH, f"route: with the prefix of its includes, the pattern {wrong}")
    return None if problems.error_count > found else match_of(conditions)


def match_of(conditions: Conditions) -> Match:
    """Return the match for a proxy: without a path, every path."""
    return Match(
        path=conditions.path or Prefix("/"),
        headers=tuple(sorted(set(conditions.headers))),
        query=tuple(sorted(set(conditions.query))),
    )


def joined(above: Conditions, below: Conditions) -> Conditions:
    """Require both; paths are put one after the other."""
    return Conditions(
        path=_joined_path(above.path, below.path),
        headers=(*above.headers, *below.headers),
        query=(*above.query, *below.query),
    )


def _joined_path(above: PathMatch | None, below: PathMatch | None) -> PathMatch | None:
    if above is None or below is None:
        return below or above
    before = above.path.removesuffix("/")
    match below:
        case Exact(path):
            return Exact(before + path)
        case Prefix(path):
            return Prefix(before + path)
        case Segments(path):
            return Segments(before + path)
        case Regex(path):
            # In a group, because the prefix must apply to every alternative of the pattern.
            return Regex(f"{re.escape(before)}(?:{path})") if before else below
        case _:
            assert_never(below)


# --- Reading


def _read(written: Sequence[MatchCondition], what: str, problems: Problems) -> Conditions:
    paths: list[PathMatch] = []
    headers: list[HeaderMatch] = []
    query: list[QueryMatch] = []
    for index, condition in enumerate(written):
        with problems.at("conditions", index):
            paths += _paths(condition, what, problems)
            if condition.header is not None:
                headers += _header(condition.header, problems)
            if condition.query_parameter is not None:
                query += _query(condition.query_parameter, problems)
    with problems.at("conditions"):
        if len(paths) > 1:
            problems.add(
                _PATH,
                f"{what}: more than one prefix, exact or regex is not allowed in a condition block. "
                "Remove all but one.",
            )
        conditions = Conditions(path=paths[0] if paths else None, headers=tuple(headers), query=tuple(query))
        if what == "include":
            _require_no_contradiction(conditions, problems)
    return conditions


def _paths(condition: MatchCondition, what: str, problems: Problems) -> Iterable[PathMatch]:
    for kind, path, match in (
        ("prefix", condition.prefix, Prefix),
        ("exact", condition.exact, Exact),
        ("regex", condition.regex, Regex),
    ):
        if not path:
            continue
        if not path.startswith("/"):
            problems.add(
                _PATH, f"{what}: {kind} conditions must start with /, {path} was supplied. Add a slash in front."
            )
        elif match is Regex:
            if wrong := regex_problem(path):
                problems.add(_PATH, f"{what}: supplied regex: {path} invalid. error: {wrong}")
        elif wrong := path_problem(path):
            problems.add(_PATH, f"{what}: the path {path!r} {wrong}")
        yield match(path)


def _header(written: HeaderCondition, problems: Problems) -> Iterable[HeaderMatch]:
    name = written.name.lower()
    if not (is_header_name(name) or name in _PSEUDO_HEADERS):
        problems.add(_HEADER, f"{written.name!r} is not a header name. Use letters, digits and hyphens.")
    given = [
        (TextTest.PRESENT, "", False) if written.present else None,
        (TextTest.PRESENT, "", True) if written.notpresent else None,
        (TextTest.CONTAINS, written.contains, False) if written.contains else None,
        (TextTest.CONTAINS, written.notcontains, True) if written.notcontains else None,
        (TextTest.EXACT, written.exact, False) if written.exact else None,
        (TextTest.EXACT, written.notexact, True) if written.notexact else None,
        (TextTest.REGEX, written.regex, False) if written.regex else None,
    ]
    tests = [each for each in given if each is not None]
    if len(tests) != 1:
        problems.add(
            _HEADER,
            f"The condition on header {written.name!r} does not have exactly one test. Set one of present, notpresent, "
            "contains, notcontains, exact, notexact and regex.",
        )
        return
    [(test, text, inverted)] = tests
    _require_text(_HEADER, test, text, problems)
    by_case, by_absence = test in {TextTest.CONTAINS, TextTest.EXACT}, bool(inverted and text)
    _warn_of_no_effect("ignoreCase", given=written.ignore_case, works=by_case, problems=problems)
    _warn_of_no_effect("treatMissingAsEmpty", given=written.treat_missing_as_empty, works=by_absence, problems=problems)
    yield HeaderMatch(
        name=name,
        test=test,
        text=text,
        inverted=inverted,
        ignore_case=written.ignore_case and by_case,
        missing_is_empty=written.treat_missing_as_empty and by_absence,
    )


def _query(written: QueryParameterCondition, problems: Problems) -> Iterable[QueryMatch]:
    given = {
        TextTest.EXACT: written.exact,
        TextTest.PREFIX: written.prefix,
        TextTest.SUFFIX: written.suffix,
        TextTest.REGEX: written.regex,
        TextTest.CONTAINS: written.contains,
    }
    tests = [(test, text) for test, text in given.items() if text]
    if written.present:
        tests.append((TextTest.PRESENT, ""))
    if not tests:
        problems.add(_QUERY, "must specify at least one query parameter condition. Add one.")
        return
    if len(tests) > 1:
        problems.add(
            _QUERY, "cannot specify more than one condition in the same match condition branch. Remove all but one."
        )
        return
    [(test, text)] = tests
    if len(written.name.encode()) > _LONGEST_PARAMETER:
        problems.add(_QUERY, f"The name of the query parameter is longer than {_LONGEST_PARAMETER} bytes. Shorten it.")
    _require_text(_QUERY, test, text, problems)
    by_case = test not in {TextTest.PRESENT, TextTest.REGEX}
    _warn_of_no_effect("ignoreCase", given=written.ignore_case, works=by_case, problems=problems)
    yield QueryMatch(name=written.name, test=test, text=text, ignore_case=written.ignore_case and by_case)


def _require_text(reason: str, test: TextTest, text: str, problems: Problems) -> None:
    if test is TextTest.REGEX and (wrong := regex_problem(text)):
        problems.add(reason, f"{_BAD_REGEX}: it {wrong}")
    elif not text.isprintable():
        problems.add(reason, f"{text!r} cannot occur in a request. Use printable characters.")


def _warn_of_no_effect(field: str, *, given: bool, works: bool, problems: Problems) -> None:
    if given and not works:
        with problems.at(field):
            problems.warn(
                "IgnoredField", f'ignoring field "{field}", which has no effect on this kind of condition. Remove it.'
            )


# --- Contradictions


def _require_no_contradiction(conditions: Conditions, problems: Problems) -> None:
    """Reject conditions on one header that exclude each other, and two exact values of one thing."""
    tests = [(each.name, each.test, each.text, each.inverted) for each in conditions.headers]
    for name, test, text, inverted in sorted(set(tests)):
        if not inverted and (name, test, text, True) in tests:
            problems.add(
                _HEADER,
                f"cannot specify contradictory '{test.value}' and 'not{test.value}' conditions for the same route and "
                "header. Remove one of them.",
            )
    exact = [each.name for each in conditions.headers if each.test is TextTest.EXACT and not each.inverted]
    if len(exact) > len(set(exact)):
        problems.add(
            _HEADER, "cannot specify duplicate header 'exact match' conditions in the same route. Remove one of them."
        )
    exact = [each.name.lower() for each in conditions.query if each.test is TextTest.EXACT]
    if len(exact) > len(set(exact)):
        problems.add(
            _QUERY,
            "cannot specify duplicate query parameter 'exact match' conditions in the same route. Remove one of them.",
        )
