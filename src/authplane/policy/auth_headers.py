"""The ``Auth-*`` headers in which a backend speaks to the origin, and those in which a client must not."""

import re
from functools import lru_cache
from typing import Final

from authplane.policy.headers import fit_name, fit_value
from authplane.policy.request import Request

_CONTEXT: Final = "auth-context-"
_OWNED: Final = ("auth-handler", "auth-realm", "auth-username")
_FIXED: Final = tuple(sorted(form for name in _OWNED for form in (name, name.replace("-", "_"))))
_WORD: Final = re.compile(r"[^-]+")


def context_headers(request: Request) -> tuple[tuple[str, str], ...]:
    """Name a header for each entry of the context; an entry that no header can carry is left out."""
    return _named(tuple(sorted(request.context.items()))) if request.context else ()


def spoofed_headers(request: Request, ours: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """List the ``Auth-*`` headers that are not among ``ours``: a client must not speak in our name.

    The fixed names are listed unseen, since a proxy may be told to send us only some headers. Underscores count as
    hyphens: an origin may not tell them apart.
    """
    if not request.auth_names:
        return _unseen(ours)
    spoofed = {name for name in request.auth_names if _is_owned(name.replace("_", "-"))}
    return tuple(sorted(spoofed.union(_FIXED) - {name.lower() for name, _ in ours}))


# Contexts come from the configuration, and so do most of the headers that are set: there are few of them.
@lru_cache(maxsize=1024)
def _named(context: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    named = {_canonical(_CONTEXT + key): value for key, value in reversed(context)}
    return tuple(sorted((name, value) for name, value in named.items() if fit_name(name) and fit_value(value)))


@lru_cache(maxsize=1024)
def _unseen(ours: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    known = {name.lower() for name, _ in ours}
    return tuple(name for name in _FIXED if name not in known)


def _is_owned(name: str) -> bool:
    return name in _OWNED or name.startswith(_CONTEXT)


def _canonical(name: str) -> str:
    """Write a name as Go does: each word between hyphens starts with a capital."""
    return _WORD.sub(lambda word: word[0][:1].upper() + word[0][1:].lower(), name)
