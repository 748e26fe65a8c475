"""Tokens from files that calls of our channels need."""

from collections.abc import Generator
from typing import Final

import grpc

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.runtime.connections.channel_pool import PooledChannel
from authplane.dataplane.runtime.connections.jwt_calls import failure_of, tell_refused
from authplane.dataplane.runtime.connections.jwt_file import token_sources
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer


@dataclass(frozen=True, slots=True)
class AwaitToken:
    """Step: wait for the token of a file; the outcome is the answer, or None if the call's time is over."""

    source: TokenSource


@dataclass(frozen=True, slots=True)
class UsedTokens:
    """The tokens of a call, and where they came from."""

    pairs: tuple[tuple[TokenSource, Bearer], ...] = ()

    def ended(self, code: object) -> None:
        """Take how the call ended."""
        for source, bearer in self.pairs:
            tell_refused(source, bearer, code)


NO_TOKENS: Final = UsedTokens()


def needed_by(pooled: PooledChannel, credentials: grpc.CallCredentials | None) -> tuple[TokenSource, ...]:
    """Return the token files that a call on a channel needs, with credentials of its own."""
    return pooled.tokens if credentials is None else (*pooled.tokens, *token_sources(credentials))


def tokens_from(sources: tuple[TokenSource, ...]) -> Generator[AwaitToken, Answer | None, UsedTokens | Stop]:
    """Return the tokens of a call, or how it fails; grpcio itself would make UNAVAILABLE of every failure."""
    used: list[tuple[TokenSource, Bearer]] = []
    for source in sources:
        answer = yield AwaitToken(source)
        if not isinstance(answer, Bearer):
            return failure_of(answer)
        used.append((source, answer))
    return UsedTokens(tuple(used))
