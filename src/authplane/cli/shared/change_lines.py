"""Changes of Envoy's configuration in readable form."""

from collections.abc import Mapping, Sequence
from typing import Final

from authplane.core.text import name_some

_MOST: Final = 3
_UNCHANGED: Final = "Envoy's configuration is unchanged"
_OPPOSITES: Final = {"added": "removed", "removed": "added"}
"""A route table that is removed under one full name and added under another is shown as changed."""


def changes_line(difference: Mapping[str, Sequence[str]]) -> str:
    """Describe the changes of Envoy's configuration in one line, with a few names of each kind."""
    told: dict[str, list[str]] = {}
    for key, names in difference.items():
        noun, verb = key.rsplit(" ", 1)
        # The part after # distinguishes route tables with different filters; only Envoy needs it.
        found = list(dict.fromkeys(name.partition("#")[0] for name in names))
        others = {name.partition("#")[0] for name in difference.get(f"{noun} {_OPPOSITES.get(verb, '')}", ())}
        for name in found:
            kept = told.setdefault(f"{noun} changed" if name in others else key, [])
            if name not in kept:
                kept.append(name)
    return "; ".join(f"{key}: {name_some(names, _MOST)}" for key, names in told.items()) or _UNCHANGED


def applied_line(changes: str, *, errors: bool) -> str:
    """Add to the changes of Envoy's configuration whether the files are in force: not all policies are Envoy's."""
    applied = "resources with errors are not applied" if errors else "applied all resources"
    return f"{applied}; {changes}"
