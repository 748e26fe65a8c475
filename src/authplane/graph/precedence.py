"""Which paths are looked at before which."""

from typing import assert_never

from authplane.graph.model import Exact, PathMatch, Prefix, Regex, Segments


def path_rank(path: PathMatch) -> int:
    """Sort exact paths first, then patterns, then prefixes."""
    match path:
        case Exact():
            return 0
        case Regex():
            return 1
        case Prefix() | Segments():
            return 2
        case _:
            assert_never(path)
