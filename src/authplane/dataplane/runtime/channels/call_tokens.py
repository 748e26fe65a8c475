"""Tokens from files that calls of our channels need."""

from dataclasses import dataclass
from time import monotonic
from typing import Final

import grpc

from authplane.dataplane.filters.calls import Code, Stop
from authplane.dataplane.runtime.connections.channel_pool import Line
from authplane.dataplane.runtime.connections.jwt_aio import token_of
from authplane.dataplane.runtime.connections.jwt_file import token_sources
from authplane.dataplane.runtime.connections.jwt_threads import tell_refused, wait_for_token
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer, Unauthenticated

_LATE: Final = Stop(code=Code.DEADLINE_EXCEEDED, message="Deadline Exceeded")


@dataclass(frozen=True, slots=True)
class UsedTokens:
    """The tokens of a call, and where they came from."""

    pairs: tuple[tuple[TokenSource, Bearer], ...] = ()

    def ended(self, code: object) -> None:
        """Take how the call ended."""
        for source, bearer in self.pairs:
            tell_refused(source, bearer, code)


NO_TOKENS: Final = UsedTokens()


def needed_by(line: Line, credentials: grpc.CallCredentials | None) -> tuple[TokenSource, ...]:
    """Return the token files that a call on a line needs, with credentials of its own."""
    return line.tokens if credentials is None else (*line.tokens, *token_sources(credentials))


def wait_for_tokens(sources: tuple[TokenSource, ...], until: float | None) -> UsedTokens | Stop:
    """Return the tokens of a call, or how it fails; grpcio itself would make UNAVAILABLE of every failure."""
    used: list[tuple[TokenSource, Bearer]] = []
    for source in sources:
        answer = wait_for_token(source, None if until is None else until - monotonic())
        if not isinstance(answer, Bearer):
            return _stop(answer)
        used.append((source, answer))
    return UsedTokens(tuple(used))


async def tokens_for(sources: tuple[TokenSource, ...]) -> UsedTokens | Stop:
    """Return the tokens of a call, or how it fails."""
    used: list[tuple[TokenSource, Bearer]] = []
    for source in sources:
        answer = await token_of(source)
        if not isinstance(answer, Bearer):
            return _stop(answer)
        used.append((source, answer))
    return UsedTokens(tuple(used))


def _stop(answer: Answer | None) -> Stop:
    if answer is None or isinstance(answer, Bearer):
        return _LATE
    code = Code.UNAUTHENTICATED if isinstance(answer, Unauthenticated) else Code.UNAVAILABLE
    return Stop(code=code, message=answer.message)
