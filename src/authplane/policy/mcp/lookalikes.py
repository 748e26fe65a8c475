"""Names that a lenient reader could take for others.

Some readers of JSON ignore the case of members, fold letters as Unicode does, stop at a NUL, or trim. So an unknown
member that any of them could take for a known one makes the message ambiguous.
"""

import unicodedata
from collections.abc import Collection
from typing import Final

MEMBERS: Final = frozenset(
    {"jsonrpc", "id", "method", "params", "result", "error", "name", "uri", "arguments", "ref", "taskId", "_meta"}
)
"""What a decision may depend on, at the top of a message and in its ``params``."""


def fold(name: str) -> str:
    """Return what is left of a name if case, accents, widths, blanks and invisible characters do not count."""
    if name.isascii() and name.isprintable() and " " not in name:
        return name.lower()
    parts = (each for each in unicodedata.normalize("NFKD", name) if unicodedata.category(each)[0] not in "CMZ")
    # Upper case first: some letters, such as the long s and the dotless i, meet their twins only there.
    upper = unicodedata.normalize("NFKD", "".join(parts).upper().casefold())
    return "".join(each for each in upper if unicodedata.category(each)[0] not in "CMZ")


_FOLDED: Final = frozenset(fold(name) for name in MEMBERS)


def has_lookalike(names: Collection[str]) -> bool:
    """Tell whether one of these members is none of `MEMBERS`, yet could be taken for one."""
    return any(name not in MEMBERS and _misleads(name) for name in names)


def _misleads(name: str) -> bool:
    # Whatever comes after a NUL, some readers end the name there.
    return "\0" in name or fold(name) in _FOLDED
