"""The ``Auth-*`` headers that a backend sends to the origin, and that a client must not send."""

import re
from typing import Final

from authplane.policy.check.answer_headers import fit_name, fit_value

CONTEXT_PREFIX: Final = "auth-context-"
OWNED_HEADERS: Final = ("auth-handler", "auth-realm", "auth-username")
"""What backends set beside the headers of the context, in lower case and in order."""
_FIXED: Final = tuple(sorted(form for name in OWNED_HEADERS for form in (name, name.replace("-", "_"))))
_WORD: Final = re.compile(r"[^-]+")


def context_headers(context: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Name a header for each entry of the context; an entry that no header can carry is left out."""
    named = {_canonical(CONTEXT_PREFIX + key): value for key, value in sorted(context, reverse=True)}
    return tuple(sorted((name, value) for name, value in named.items() if fit_name(name) and fit_value(value)))


def spoofed_headers(auth_names: tuple[str, ...], ours: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """List the ``Auth-*`` headers of a request that are not among ``ours``: a client must not forge them.

    The fixed names are always listed, since a proxy may be configured to send only some headers. Underscores count as
    hyphens: an origin may treat them alike.
    """
    spoofed = {name for name in auth_names if _is_owned(name.replace("_", "-"))}
    return tuple(sorted(spoofed.union(_FIXED) - {name.lower() for name, _ in ours}))


def _is_owned(name: str) -> bool:
    return name in OWNED_HEADERS or name.startswith(CONTEXT_PREFIX)


def _canonical(name: str) -> str:
    """Write a name as Go does: each word between hyphens starts with a capital."""
    return _WORD.sub(lambda word: word[0][:1].upper() + word[0][1:].lower(), name)
