"""The four kinds of calls, which channels with threads and on event loops make alike."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from authplane.dataplane.runtime.connections.channel_pool import PooledChannel

Go: TypeAlias = Callable[[Any, Any, Any], Awaitable[Any]]
"""What an interceptor does: given how to go on, the details of a call, and its request or requests."""


class MakesCalls(ABC):
    """The part of a channel that methods are called through."""

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return what makes calls."""
        return self._multi(Method("unary_unary", method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return what makes calls."""
        return self._multi(Method("unary_stream", method, request_serializer, response_deserializer))

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return what makes calls."""
        return self._multi(Method("stream_unary", method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        """Return what makes calls."""
        return self._multi(Method("stream_stream", method, request_serializer, response_deserializer))

    @abstractmethod
    def _multi(self, method: "Method") -> Any:
        """Return what makes calls of a method."""


class Method:
    """A method that is called, on whichever channel a call goes."""

    __slots__ = ("_deserialize", "_made", "_serialize", "kind", "path")

    def __init__(self, kind: str, path: str, serialize: Any, deserialize: Any) -> None:
        self.kind = kind
        self.path = path
        self._serialize = serialize
        self._deserialize = deserialize
        self._made: dict[PooledChannel, Any] = {}

    def on(self, pooled: PooledChannel) -> Any:
        """Return what makes calls on a channel."""
        made = self._made.get(pooled)
        if made is None:
            made = self.of(pooled.channel)
            # It ends with the method, and not with the channel: programs may make new methods for every call.
            self._made = {each: known for each, known in self._made.items() if each.kept} | {pooled: made}
        return made

    def of(self, channel: Any) -> Any:
        """Return what makes calls on a channel."""
        return getattr(channel, self.kind)(self.path, self._serialize, self._deserialize)


def named(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a call with its request under one name, be it one message or many."""
    if "request_iterator" in options:
        options["request"] = options.pop("request_iterator")
    return options


def interceptors_of(go: Go) -> tuple[grpc.aio.ClientInterceptor, ...]:
    """Return interceptors that do the same with every kind of call: grpcio takes one object for one kind only."""
    return _UnaryUnary(go), _UnaryStream(go), _StreamUnary(go), _StreamStream(go)


class _Going:
    def __init__(self, go: Go) -> None:
        self._go = go


class _UnaryUnary(_Going, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._go(continuation, client_call_details, request)


class _UnaryStream(_Going, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._go(continuation, client_call_details, request)


class _StreamUnary(_Going, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._go(continuation, client_call_details, request_iterator)


class _StreamStream(_Going, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._go(continuation, client_call_details, request_iterator)
