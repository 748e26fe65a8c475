"""JWTs from a file as credentials of grpcio's calls.

grpcio makes UNAVAILABLE of every failure of call credentials. The interceptors know better: a call without a usable
token fails with the status that gRFC A97 says. They attach the same credentials, so grpcio itself sees to it that no
token goes over a connection that others can read.
"""

from typing import Final

import grpc
import grpc.aio

from authplane.io.jwt_aio import aio_interceptors
from authplane.io.jwt_calls import JwtFileInterceptor
from authplane.io.token_source import TokenSource
from authplane.xds.jwt_file import Answer, Bearer


def jwt_token_file_call_credentials(path: str) -> grpc.CallCredentials:
    """Return call credentials that send ``authorization: Bearer`` with the JWT that a file holds.

    The file is read when a call needs it, and again before its token expires. Combine them with the credentials of a
    channel (`grpc.composite_channel_credentials`) or give them to single calls; both kinds of channel take them.
    """
    return JwtFileCredentials(TokenSource(path)).call_credentials


class JwtFileCredentials:
    """One token file, as call credentials and as interceptors. A channel needs one of them, not both."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self.call_credentials: Final = grpc.metadata_call_credentials(_Plugin(source), "jwt_token_file")

    def interceptor(self) -> "JwtFileInterceptor":
        """Return an interceptor for a synchronous channel."""
        return JwtFileInterceptor(self._source, self.call_credentials)

    def aio_interceptors(self) -> tuple[grpc.aio.ClientInterceptor, ...]:
        """Return the interceptors of an asynchronous channel, one for each kind of call."""
        return aio_interceptors(self._source, self.call_credentials)


class _Plugin(grpc.AuthMetadataPlugin):
    """Answers grpcio, which asks for each call, on threads of its own."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        """Call back with the header, or with why there is none; now or when the file has been read."""
        del context

        def tell(answer: Answer) -> None:
            if isinstance(answer, Bearer):
                callback((("authorization", f"Bearer {answer.token.reveal()}"),), None)
            else:
                callback((), RuntimeError(answer.message))

        answer = self._source.ask(tell)
        if answer is not None:
            tell(answer)
