"""The headers of a call, as rules read them."""

from typing import Final

from authplane.dataplane.filters.calls import Call
from authplane.matching.header_matchers import Lookup
from authplane.matching.tree_inputs import read_header

AUTHORITY: Final = frozenset({":authority", "host"})
"""The names by which rules read the authority of a call."""


def lookup_in(call: Call) -> Lookup:
    """Return what looks up headers of a call, as `read_header` does."""
    return lambda name: read_header(name, call)
