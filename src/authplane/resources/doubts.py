"""Texts that may be policies and cannot be read at all, not even their names."""

from collections.abc import Collection, Mapping
from typing import Final

from authplane.resources.catalogue import POLICIES
from authplane.resources.chunks import Chunk, is_error
from authplane.resources.source import Source

_WORDS: Final = tuple(sorted(POLICIES))


def doubt_in(sources: Mapping[str, Source], holders: Collection[str]) -> str:
    """Say which file may hold a policy that nobody can read; empty if there is none.

    Nobody knows what such a policy protects, so nothing may be allowed. Where the last good version of what a file
    declared is in force, in a file among ``holders``, there is no doubt: what was protected still is.
    """
    doubtful = sorted(file for file, source in sources.items() if file not in holders and _may_hold_policy(source))
    return f"{doubtful[0]} may hold a policy and cannot be read" if doubtful else ""


def _may_hold_policy(source: Source) -> bool:
    return source.damage is not None or any(_may_be_policy(chunk) for chunk, _ in source.faulty)


def _may_be_policy(chunk: Chunk) -> bool:
    # A word can be spelled with escapes, and who does that has something to hide.
    spelled = any(word in chunk.text for word in _WORDS) or "\\" in chunk.text
    return spelled and any(is_error(spot) for spot in chunk.spots)
