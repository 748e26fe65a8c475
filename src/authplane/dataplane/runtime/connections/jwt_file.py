"""Call credentials for grpcio with a JWT from a file.

grpcio turns every failure of call credentials into UNAVAILABLE. The channels and interceptors of authplane use the
status of gRFC A97 for a call without a usable token. They attach the same credentials, so grpcio ensures that no token
is sent over a plaintext connection.
"""

from typing import Any, Final

import grpc
import grpc.aio

from authplane.dataplane.runtime.connections.jwt_aio import aio_interceptors
from authplane.dataplane.runtime.connections.jwt_threads import JwtFileInterceptor
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer


def jwt_token_file_call_credentials(path: str) -> grpc.CallCredentials:
    """Return call credentials that send ``authorization: Bearer`` with the JWT in a file.

    The file is read when a call needs it, and again before its token expires. Combine them with the credentials of a
    channel (`grpc.composite_channel_credentials`) or give them to single calls; both kinds of channel take them.

    Calls of `authplane.grpc.channel` and `authplane.grpc.aio.channel` fail with UNAUTHENTICATED if the file has no
    usable token, and with UNAVAILABLE if it cannot be read. On channels of grpcio itself every failure is UNAVAILABLE:
    use `jwt_token_file_interceptor` there.
    """
    return JwtFileCredentials(TokenSource(path)).call_credentials


def jwt_token_file_interceptor(path: str) -> JwtFileInterceptor:
    """Return an interceptor that sends the JWT of a file with every call of a channel of grpcio with threads.

    It does what `jwt_token_file_call_credentials` does, with the statuses of gRFC A97. The channel needs TLS.
    """
    return JwtFileCredentials(TokenSource(path)).interceptor()


def jwt_token_file_interceptors(path: str) -> tuple[grpc.aio.ClientInterceptor, ...]:
    """Return the interceptors that send the JWT of a file with every call of an asynchronous channel of grpcio.

    They do what `jwt_token_file_call_credentials` does, with the statuses of gRFC A97. The channel needs TLS.
    """
    return JwtFileCredentials(TokenSource(path)).aio_interceptors()


def token_sources(credentials: grpc.ChannelCredentials | grpc.CallCredentials | None) -> tuple[TokenSource, ...]:
    """Return the token files that are among credentials, alone or combined with others."""
    found: list[TokenSource] = []
    _collect(getattr(credentials, "_credentials", None), found)
    return tuple(found)


def _collect(inner: Any, found: list[TokenSource]) -> None:
    # grpcio does not tell what credentials are made of; these are the fields in which it keeps it.
    for each in getattr(inner, "_call_credentialses", ()):
        _collect(each, found)
    _collect_plugin(getattr(inner, "_metadata_plugin", None), found)
    combined = getattr(inner, "_channel_credentials", None)
    if combined is not None:
        _collect(combined, found)


def _collect_plugin(wrapped: Any, found: list[TokenSource]) -> None:
    plugin = getattr(wrapped, "_metadata_plugin", None)
    if isinstance(plugin, _Plugin):
        found.append(plugin.source)


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
    """Provides the metadata that grpcio requests for each call, on threads of its own."""

    def __init__(self, source: TokenSource) -> None:
        self.source: Final = source

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        """Call back with the header, or with why there is none; now or when the file has been read."""
        del context

        def tell(answer: Answer) -> None:
            if isinstance(answer, Bearer):
                callback((("authorization", f"Bearer {answer.token.reveal()}"),), None)
            else:
                callback((), RuntimeError(answer.message))

        answer = self.source.ask(tell)
        if answer is not None:
            tell(answer)
