"""The matches of HTTPRoute rules, and their URL rewrites."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from authplane.controlplane.graph.model.canonical_paths import path_problem, target_problem
from authplane.controlplane.graph.model.envoy_regexes import regex_problem
from authplane.controlplane.graph.model.header_names import is_header_name
from authplane.controlplane.graph.model.hostnames import hostname_problem
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
from authplane.controlplane.graph.model.precedence import path_rank
from authplane.controlplane.graph.model.route_model import NewPath, NewPrefix
from authplane.core.problems import Problems
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault, parse_timeout
from authplane.resources.kinds.gateway import (
    HTTPHeaderMatch,
    HTTPPathMatch,
    HTTPQueryParamMatch,
    HTTPRouteFilter,
    HTTPRouteMatch,
    PathModifier,
    RouteTimeouts,
    UrlRewrite,
)

_UNSUPPORTED: Final = "UnsupportedValue"
_METHOD: Final = re.compile(r"[A-Z]{1,32}")
_DURATION: Final = re.compile(r"(?:[0-9]{1,5}(?:h|m|s|ms)){1,4}")
_REMOVE: Final = "Remove the filter, or use only URLRewrite."
METHOD: Final = ":method"


def read_match(written: HTTPRouteMatch, problems: Problems) -> Match:
    """Read a match; after an error it must not be used."""
    with problems.at("path", "value"):
        path = _path(written.path, problems)
    headers = []
    with problems.at("headers"):
        for index, header in _first_of_each(written.headers, ignore_case=True):
            with problems.at(index):
                headers.append(_header(header, problems))
    if written.method:
        if not _METHOD.fullmatch(written.method):
            with problems.at("method"):
                problems.add(_UNSUPPORTED, f"{written.method!r} is not an HTTP method. Use one such as 'GET'.")
        headers.append(HeaderMatch(name=METHOD, test=TextTest.EXACT, text=written.method))
    query = []
    with problems.at("queryParams"):
        for index, parameter in _first_of_each(written.query_params, ignore_case=False):
            with problems.at(index):
                query.append(_query(parameter, problems))
    return Match(path=path, headers=tuple(sorted(headers)), query=tuple(sorted(query)))


Precedence: TypeAlias = tuple[int, int, bool, int, int]


def precedence(match: Match) -> Precedence:
    """Sort as the Gateway API says: exact paths, longer prefixes, a method, more headers, more of the query.

    The specification leaves the place of regular expressions open: here they come after exact paths.
    """
    method = any(each.name == METHOD for each in match.headers)
    return (path_rank(match.path), -len(match.path.path), not method, method - len(match.headers), -len(match.query))


def _path(written: HTTPPathMatch, problems: Problems) -> PathMatch:
    if written.type == "RegularExpression":
        wrong = regex_problem(written.value)
        if wrong:
            problems.add(_UNSUPPORTED, f"{written.value!r} {wrong}")
        return Regex(written.value)
    wrong = path_problem(written.value)
    if wrong:
        problems.add(_UNSUPPORTED, f"{written.value!r} {wrong}")
    if written.type == "Exact":
        return Exact(written.value)
    segments = written.value.rstrip("/")
    return Segments(segments) if segments else Prefix("/")


_Named: TypeAlias = HTTPHeaderMatch | HTTPQueryParamMatch


def _first_of_each(written: Sequence[_Named], *, ignore_case: bool) -> Iterator[tuple[int, _Named]]:
    """Return what counts: of several for one name, the first."""
    seen: set[str] = set()
    for index, each in enumerate(written):
        name = each.name.lower() if ignore_case else each.name
        if name not in seen:
            seen.add(name)
            yield index, each


def _header(written: _Named, problems: Problems) -> HeaderMatch:
    if not is_header_name(written.name):
        with problems.at("name"):
            problems.add(_UNSUPPORTED, f"{written.name!r} is not a header name. Use letters, digits and hyphens.")
    return HeaderMatch(name=written.name.lower(), test=_test(written, problems), text=written.value)


def _query(written: _Named, problems: Problems) -> QueryMatch:
    if not (written.name.isascii() and written.name.isprintable()):
        with problems.at("name"):
            problems.add(_UNSUPPORTED, f"{written.name!r} is not a query parameter name. Use printable ASCII.")
    return QueryMatch(name=written.name, test=_test(written, problems), text=written.value)


def _test(written: _Named, problems: Problems) -> TextTest:
    with problems.at("value"):
        if written.type == "RegularExpression":
            wrong = regex_problem(written.value)
            if wrong:
                problems.add(_UNSUPPORTED, f"{written.value!r} {wrong}")
            return TextTest.REGEX
        if not (written.value.isascii() and written.value.isprintable()):
            problems.add(_UNSUPPORTED, f"{written.value!r} cannot occur in a request. Use printable ASCII.")
        return TextTest.EXACT


# --- URLs


def read_rewrite(
    filters: tuple[HTTPRouteFilter, ...], paths: Iterable[PathMatch], problems: Problems
) -> tuple[NewPrefix | NewPath | None, str]:
    """Read what takes the place of the path, and of the host; empty leaves it."""
    for index, each in enumerate(filters):
        if not each.supported:
            with problems.at(index):
                problems.add(
                    _UNSUPPORTED, f"Filter {each.type} is not supported, so Envoy does not serve the route. {_REMOVE}"
                )
    rewrites = [(index, each) for index, each in enumerate(filters) if each.supported]
    if len(rewrites) > 1:
        problems.add(_UNSUPPORTED, "URLRewrite is set more than once. Remove all but one.")
    for index, each in rewrites[:1]:
        with problems.at(index):
            if each.url_rewrite is None:
                problems.add(_UNSUPPORTED, "The filter URLRewrite has no urlRewrite. Set urlRewrite.")
                return None, ""
            with problems.at("urlRewrite"):
                return _rewrite(each.url_rewrite, paths, problems)
    return None, ""


def _rewrite(
    written: UrlRewrite, paths: Iterable[PathMatch], problems: Problems
) -> tuple[NewPrefix | NewPath | None, str]:
    host = (written.hostname or "").lower()
    wrong = hostname_problem(host) if host else ""
    if wrong or host.startswith("*"):
        with problems.at("hostname"):
            problems.add(_UNSUPPORTED, f"{written.hostname!r} {wrong or 'is a wildcard. Use one DNS name.'}")
    if written.path is None:
        return None, host
    with problems.at("path"):
        return _new_path(written.path, paths, problems), host


def _new_path(written: PathModifier, paths: Iterable[PathMatch], problems: Problems) -> NewPrefix | NewPath | None:
    whole = written.type == "ReplaceFullPath"
    given = written.replace_full_path if whole else written.replace_prefix_match
    other = written.replace_prefix_match if whole else written.replace_full_path
    if given is None or other is not None:
        field = "replaceFullPath" if whole else "replacePrefixMatch"
        problems.add(_UNSUPPORTED, f"Type {written.type} requires {field} and no other field. Set only {field}.")
        return None
    path = given or "/"
    wrong = target_problem(path)
    if wrong:
        problems.add(_UNSUPPORTED, f"{given!r} {wrong}")
    if whole:
        return NewPath(path)
    if not all(isinstance(each, Segments | Prefix) for each in paths):
        problems.add(
            _UNSUPPORTED,
            "ReplacePrefixMatch requires matches of type PathPrefix. Change the matches, or use ReplaceFullPath.",
        )
    return NewPrefix(path.rstrip("/") or "/")


def rewrite_at(path: PathMatch, rewrite: NewPrefix | NewPath | None) -> NewPrefix | NewPath | None:
    """Return the rewrite for a matched path: ``/`` matches the slash before the rest, so the new prefix needs one."""
    if isinstance(path, Prefix) and isinstance(rewrite, NewPrefix) and rewrite.path != "/":
        return NewPrefix(f"{rewrite.path}/")
    return rewrite


# --- Timeouts


def read_timeout(written: RouteTimeouts | None, otherwise: Timeout, problems: Problems) -> Timeout:
    """Read how long a request may take; there are no retries, so the shorter of the two limits applies."""
    if written is None:
        return otherwise
    with problems.at("timeouts"):
        request = _duration(written.request, "request", problems)
        backend = _duration(written.backend_request, "backendRequest", problems)
        if isinstance(request, After) and isinstance(backend, After) and backend.duration > request.duration:
            problems.add(_UNSUPPORTED, "backendRequest is longer than request. Lower backendRequest.")
    if isinstance(backend, After):
        return backend
    return otherwise if isinstance(request, UseDefault) else request


def _duration(text: str, field: str, problems: Problems) -> Timeout:
    if not text:
        return UseDefault()
    parsed = parse_timeout(text) if _DURATION.fullmatch(text) else None
    if parsed is None:
        with problems.at(field):
            problems.add(_UNSUPPORTED, f"{text!r} is not a duration. Use one such as '10s'.")
        return UseDefault()
    # Gateway API: zero disables the timeout.
    return Disabled() if isinstance(parsed, UseDefault) else parsed
