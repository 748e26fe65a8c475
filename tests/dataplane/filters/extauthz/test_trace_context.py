"""The trace of a call goes with its check; what a client makes of it cannot keep the check from being sent."""

from typing import Final, NamedTuple

import pytest

from authplane.dataplane.filters.calls import Metadata
from authplane.dataplane.filters.extauthz.trace_context import trace_of

PARENT: Final = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
LATER: Final = ("traceparent", f"{PARENT[1].replace('00-', 'cc-', 1)}-what.comes")
STATE: Final = ("tracestate", "a=b,c=d")
BINARY: Final = ("grpc-trace-bin", b"\0" * 29)


class Case(NamedTuple):
    metadata: Metadata
    want: Metadata
    ours: Metadata = ()


CASES: Final = {
    "no trace": Case((("x", "1"),), ()),
    "all of it, in order": Case((BINARY, ("x", "1"), PARENT, STATE), (BINARY, PARENT, STATE)),
    "a parent alone": Case((PARENT,), (PARENT,)),
    "a state of two lines": Case((PARENT, STATE, STATE), (PARENT, STATE, STATE)),
    "a later version": Case((LATER, STATE), (LATER, STATE)),
    "two parents are none": Case((PARENT, PARENT, STATE, BINARY), (BINARY,)),
    "a state without a parent": Case((STATE, BINARY), (BINARY,)),
    "a parent that is none": Case((("traceparent", "x"), STATE), ()),
    "a parent in capitals": Case((("traceparent", PARENT[1].upper()), STATE), ()),
    "a parent that goes on": Case((("traceparent", PARENT[1] + "-" + "a" * 65), STATE), ()),
    "a parent with a line break": Case((("traceparent", PARENT[1] + "\n"), STATE), ()),
    "the longest state": Case((PARENT, ("tracestate", "a" * 512)), (PARENT, ("tracestate", "a" * 512))),
    "a longer state": Case((PARENT, ("tracestate", "a" * 513)), (PARENT,)),
    "a longer state in parts": Case((PARENT, ("tracestate", "a" * 500), STATE, STATE), (PARENT,)),
    "a state that no header can carry": Case((PARENT, ("tracestate", "a=\udcff")), (PARENT,)),
    "a large binary": Case((PARENT, ("grpc-trace-bin", b"\0" * 65)), (PARENT,)),
    "many binaries": Case((PARENT, BINARY, BINARY, BINARY), (PARENT,)),
    "what the configuration sets": Case((PARENT, STATE, BINARY), (PARENT, BINARY), (("tracestate", "ours"),)),
}


@pytest.mark.requirement("EA-26")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_trace_that_goes_with_a_check(case: Case) -> None:
    assert trace_of(case.metadata, case.ours) == case.want
