"""The trace of a call, as a check carries it."""

import re
from typing import Final

from authplane.dataplane.filters.calls import Metadata

_PARENT: Final = "traceparent"
_STATE: Final = "tracestate"
_BINARY: Final = "grpc-trace-bin"
_NAMES: Final = frozenset({_PARENT, _STATE, _BINARY})

# W3C Trace Context, 3.2: a version later than ours may add something at the end.
_PARENT_FORM: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{1,64})?")
_STATE_FORM: Final = re.compile(r"[ -~\t]*")
_LONGEST_STATE: Final = 512
"""Characters of ``tracestate`` that an intermediary should propagate at least (W3C Trace Context)."""
_LONGEST_BINARY: Final = 64


def trace_of(metadata: Metadata, ours: Metadata) -> Metadata:
    """Return the headers of the trace that a call is part of; those that the configuration sets are left out.

    A client chooses these values. Malformed or long ones are dropped: a check that cannot be sent has no decision, and
    FailOpen would then allow the call.
    """
    found = [pair for pair in metadata if pair[0] in _NAMES]
    if not found:
        return ()
    parents = [value for name, value in found if name == _PARENT]
    # 3.2.1: more than one traceparent is as good as none, and without one there is no state.
    dropped = set() if len(parents) == 1 and _is_parent(parents[0]) else {_PARENT, _STATE}
    if not _is_state([value for name, value in found if name == _STATE]):
        dropped.add(_STATE)
    if sum(len(value) for name, value in found if name == _BINARY) > _LONGEST_BINARY:
        dropped.add(_BINARY)
    dropped |= {name for name, _ in ours}
    return tuple([pair for pair in found if pair[0] not in dropped])


def _is_parent(value: str | bytes) -> bool:
    return isinstance(value, str) and _PARENT_FORM.fullmatch(value) is not None


def _is_state(values: list[str | bytes]) -> bool:
    return sum(map(len, values)) <= _LONGEST_STATE and all(
        isinstance(value, str) and _STATE_FORM.fullmatch(value) for value in values
    )
