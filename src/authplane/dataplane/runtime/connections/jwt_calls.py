"""What the result of a token file means for a call, on any kind of channel."""

from typing import Final

import grpc

from authplane.dataplane.filters.calls import Code, Stop
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.jwt_file_state import Bearer, Failure, Unauthenticated

LATE: Final = Stop(code=Code.DEADLINE_EXCEEDED, message="Deadline Exceeded")
"""As grpcio itself says it."""


def failure_of(answer: Failure | None) -> Stop:
    """Return how a call fails for which there is no token; None is that its time was over before that was known."""
    if answer is None:
        return LATE
    code = Code.UNAUTHENTICATED if isinstance(answer, Unauthenticated) else Code.UNAVAILABLE
    return Stop(code=code, message=answer.message)


def tell_refused(source: TokenSource, used: Bearer, code: object) -> None:
    """Tell where a token came from how a call with it ended, if it was not accepted."""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        source.refused(used.token)


def joined(already: grpc.CallCredentials | None, ours: grpc.CallCredentials) -> grpc.CallCredentials:
    """Return credentials that have both."""
    return ours if already is None else grpc.composite_call_credentials(already, ours)
