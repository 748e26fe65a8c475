"""What changed for Envoy, in words for people."""

from collections.abc import Mapping, Sequence
from typing import Final

from authplane.core.text import name_some

_MOST: Final = 3
_OPPOSITES: Final = {"added": "removed", "removed": "added"}
"""A table that goes under one full name and comes under another has changed, as far as people can see."""


def changes_line(difference: Mapping[str, Sequence[str]]) -> str:
    """Say in one line what Envoy sees change, with a few names of each kind."""
    told: dict[str, list[str]] = {}
    for key, names in difference.items():
        noun, verb = key.rsplit(" ", 1)
        # Behind # is what tells route tables with different filters apart, which is for Envoy.
        found = list(dict.fromkeys(name.partition("#")[0] for name in names))
        others = {name.partition("#")[0] for name in difference.get(f"{noun} {_OPPOSITES.get(verb, '')}", ())}
        for name in found:
            kept = told.setdefault(f"{noun} changed" if name in others else key, [])
            if name not in kept:
                kept.append(name)
    return "; ".join(f"{key}: {name_some(names, _MOST)}" for key, names in told.items()) or "nothing changed for Envoy"
