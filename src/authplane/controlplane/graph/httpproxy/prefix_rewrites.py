"""Replaces a matched prefix in requests to the origin."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from authplane.controlplane.graph.model.canonical_paths import target_problem
from authplane.controlplane.graph.model.match_model import Match, PathMatch, Prefix
from authplane.controlplane.graph.model.route_model import Forward, NewPrefix, Route
from authplane.core.problems import Problems
from authplane.resources.kinds.contour import PathRewritePolicy, ReplacePrefix


def read_replacement(policy: PathRewritePolicy, path: PathMatch | None, problems: Problems) -> NewPrefix | None:
    """Return what replaces the prefix of a route; None if nothing does. A path that is None could not be read."""
    written = policy.replace_prefix
    with problems.at("pathRewritePolicy", "replacePrefix"):
        if path is not None and not isinstance(path, Prefix):
            problems.add(
                "MustHavePrefix",
                "cannot specify prefix replacements without a prefix condition. Add a prefix condition.",
            )
        _require_distinct(written, problems)
        for each in written:
            if wrong := target_problem(each.replacement):
                problems.add("ReplacementNotValid", f"The replacement {each.replacement!r} {wrong}")
    by_prefix = {each.prefix: each.replacement for each in written}
    default = by_prefix.get("")
    text = default if path is None else by_prefix.get(path.path, default)
    return None if text is None else NewPrefix(text)


def _require_distinct(written: tuple[ReplacePrefix, ...], problems: Problems) -> None:
    seen: set[str] = set()
    for each in written:
        if each.prefix in seen and each.prefix:
            problems.add("DuplicateReplacement", f"duplicate replacement prefix '{each.prefix}'. Remove one of them.")
        elif each.prefix in seen:
            problems.add("AmbiguousReplacement", "ambiguous prefix replacement. Set the prefix of each replacement.")
        seen.add(each.prefix)


def with_slashes(route: Route, taken: Container[Match]) -> tuple[Route, ...]:
    """Return the routes that replace a prefix right, with a slash after it and without, in their order.

    Envoy replaces text: ``/foo`` by ``/`` would make ``//v1`` of ``/foo/v1``, and ``/foo/`` by ``/bar`` would make
    ``/bartype`` of ``/foo/type``. So ``/foo`` gets a sibling ``/foo/``, unless that is ``taken`` by another route.
    """
    action, path, bare = route.action, route.match.path, _replacement(route)
    if not isinstance(action, Forward) or bare is None or path.path == "/":
        return (route,)
    if path.path.endswith("/"):
        return (replace(route, action=replace(action, rewrite=NewPrefix(f"{bare}/"))),)
    below = replace(route.match, path=Prefix(f"{path.path}/"))
    if below in taken:
        return (route,)
    return (
        replace(route, match=below, action=replace(action, rewrite=NewPrefix(f"{bare}/"))),
        replace(route, action=replace(action, rewrite=NewPrefix(bare or "/"))),
    )


def _replacement(route: Route) -> str | None:
    """Return what takes the place of a route's prefix, without a slash at its end; None if nothing does."""
    rewrite = route.action.rewrite if isinstance(route.action, Forward) else None
    return rewrite.path.rstrip("/") if isinstance(rewrite, NewPrefix) else None


def prefix_groups(taken: Iterable[Match]) -> Mapping[str, int]:
    """Return how many routes have a prefix, with a slash at its end or without; it is named without."""
    return Counter(each.path.path.rstrip("/") for each in taken if isinstance(each.path, Prefix))


def without_slash(route: Route, groups: Mapping[str, int]) -> Route | None:
    """Return the route for ``/foo`` that a rewritten prefix ``/foo/`` has in Contour too.

    There is none if other routes have one of the two prefixes: Contour leaves those as they are written.
    """
    action, path, bare = route.action, route.match.path, _replacement(route)
    if not isinstance(action, Forward) or bare is None or not isinstance(path, Prefix):
        return None
    shorter = path.path.rstrip("/")
    if not shorter or shorter == path.path or groups[shorter] != 1:
        return None
    match = replace(route.match, path=Prefix(shorter))
    return replace(route, match=match, action=replace(action, rewrite=NewPrefix(bare or "/")))
