"""Channels to other services, such as an authorization service: equal keys share a channel, and updates keep it.

Cancellation differs: with threads, the calling RPC cancels the future of a side call; on an event loop, its task is
cancelled. So each kind makes its calls itself, with the same outcomes.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeAlias, assert_never

import grpc
import grpc.aio

from authplane.dataplane.filters.calls import Answered, Ask, Code, Metadata, Outcome, Unanswered
from authplane.dataplane.filters.extauthz.service_config.service import (
    NamedChannelCredentials,
    NamedCredentials,
    SideChannel,
    XdsOr,
)
from authplane.dataplane.runtime.connections.channel_pool import (
    AioChannelPool,
    Opener,
    PooledChannel,
    ThreadChannelPool,
)
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError, Dialer
from authplane.xds.bootstrap.credentials import (
    ChannelCredentials,
    GoogleDefault,
    Insecure,
    ServiceCredentials,
    TlsFiles,
)

WhenEnded: TypeAlias = Callable[[Callable[[], None]], bool]
"""Has something called when the call that asks has ended; False if it has ended already."""

_OPTIONS: Final = (
    # Other channels of the program must not share these connections.
    ("grpc.use_local_subchannel_pool", 1),
    # Reconnect soon to a service that was unreachable: calls wait for it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.max_receive_message_length", 1024 * 1024),
)
_CODES: Final = {each.value[0]: Code(each.value[0]) for each in grpc.StatusCode}
_CLOSED: Final = Unanswered(Code.UNAVAILABLE, "the side channels are closed")
_BRIEF: Final = 5.0
"""Seconds that a thread may wait for an answer that is no longer needed."""


class CallEndedError(Exception):
    """The call ended while its filters waited; their verdict is no longer needed."""


def channel_keys(value: object) -> frozenset[SideChannel]:
    """Find the side channels that a configuration names, however deep.

    It is looked for in dataclasses, mappings and sequences, and in the attribute ``side_channels`` of anything else.
    """
    found: set[SideChannel] = set()
    # Each part is looked at once: trees have some of theirs in two places, an index besides the entries.
    seen: dict[int, object] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            if isinstance(each, SideChannel):
                found.add(each)
            else:
                waiting += _parts(each)
    return frozenset(found)


def _parts(value: object) -> Iterable[object]:
    if is_dataclass(value):
        return [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, tuple | list | frozenset | set):
        return value
    named = getattr(value, "side_channels", ())
    return named if isinstance(named, tuple | list | frozenset | set) else ()


class SideChannels:
    """Side channels of threads."""

    def __init__(self) -> None:
        self._pool = ThreadChannelPool(_opener)

    def __len__(self) -> int:
        return len(self._pool)

    def keep(self, keys: frozenset[SideChannel]) -> None:
        """Keep the channels of these keys open once they are, and close others when they are no longer busy."""
        self._pool.keep(keys)

    def ask(self, ask: Ask, when_ended: WhenEnded | None = None) -> Outcome:
        """Make a side call; when the call for which it is made has ended it is given up, with `CallEndedError`."""
        try:
            pooled = self._pool.take(ask.channel)
        except CredentialsUnusableError as error:
            return Unanswered(Code.UNAVAILABLE, str(error))
        if pooled is None:
            return _CLOSED
        try:
            return _blocking_ask(pooled, ask, when_ended)
        finally:
            self._pool.release(ask.channel, pooled)

    def close(self) -> None:
        """Close everything; calls in progress are cancelled."""
        self._pool.close()


class AioSideChannels:
    """Side channels of an event loop."""

    def __init__(self) -> None:
        self._pool = AioChannelPool(_opener)

    def __len__(self) -> int:
        return len(self._pool)

    def keep(self, keys: frozenset[SideChannel]) -> None:
        """Keep the channels of these keys open once they are, and close others when they are no longer busy."""
        self._pool.keep(keys)

    async def ask(self, ask: Ask) -> Outcome:
        """Make a side call; it is given up if the task is cancelled."""
        pool = self._pool
        pooled = pool.take_now(ask.channel)
        if pooled is None:
            try:
                pooled = await pool.take(ask.channel)
            except CredentialsUnusableError as error:
                return Unanswered(Code.UNAVAILABLE, str(error))
            if pooled is None:
                return _CLOSED
        method, metadata = pooled.multi("unary_unary", ask.method), ask.metadata
        if pooled.metadata:
            metadata = (*metadata, *pooled.metadata)
        try:
            return Answered(await method(ask.request, timeout=ask.timeout, metadata=metadata))
        except grpc.aio.AioRpcError as error:
            return _unanswered(error)
        except grpc.aio.UsageError:
            return _CLOSED
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _CLOSED
        finally:
            pool.release(ask.channel, pooled)

    async def close(self) -> None:
        """Close everything; calls in progress are cancelled."""
        await self._pool.close()


class _Dialed(Opener):
    """Opens channels with named credentials."""

    def __init__(self, target: str, credentials: ServiceCredentials, metadata: Metadata = ()) -> None:
        self._dialer = Dialer(target, credentials)
        self.metadata = metadata
        self.refresh = credentials.channel.refresh if isinstance(credentials.channel, TlsFiles) else None

    def open(self) -> grpc.Channel:
        return self._dialer.open(_OPTIONS)

    async def open_aio(self) -> grpc.aio.Channel:
        return await self._dialer.open_aio(_OPTIONS)

    def changed(self) -> bool:
        return self._dialer.changed()


class _Given(Opener):
    """Opens channels with credentials that the program itself has made."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials) -> None:
        self._target = target
        self._credentials = credentials

    def open(self) -> grpc.Channel:
        return grpc.secure_channel(self._target, self._credentials, _OPTIONS)

    async def open_aio(self) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(self._target, self._credentials, _OPTIONS)


def _opener(key: object) -> Opener:
    if not isinstance(key, SideChannel):
        raise TypeError("the key of a side channel must be a SideChannel")
    match key.credentials:
        case ServiceCredentials() as credentials:
            return _Dialed(key.target, credentials)
        case NamedCredentials(channel=named, calls=calls):
            tokens = tuple(("authorization", f"Bearer {each.token.reveal()}") for each in calls)
            return _Dialed(key.target, ServiceCredentials(channel=_channel_credentials(named)), tokens)
        case grpc.ChannelCredentials() as given:
            return _Given(key.target, given)
        case _:
            raise TypeError("unknown credentials of a side channel")


def _channel_credentials(named: NamedChannelCredentials) -> ChannelCredentials:
    match named:
        case XdsOr(fallback):
            return _channel_credentials(fallback)
        case Insecure() | GoogleDefault() | TlsFiles():
            return named
        case _:
            assert_never(named)


def _blocking_ask(pooled: PooledChannel, ask: Ask, when_ended: WhenEnded | None) -> Outcome:
    method = pooled.multi("unary_unary", ask.method)
    metadata = (*ask.metadata, *pooled.metadata) if pooled.metadata else ask.metadata
    try:
        if when_ended is None or (ask.timeout is not None and ask.timeout <= _BRIEF):
            # Quicker, as one thread less has a part in it, but cannot be given up.
            return Answered(method(ask.request, ask.timeout, metadata))
        call = method.future(ask.request, ask.timeout, metadata)
        if not when_ended(call.cancel):
            call.cancel()
        return Answered(call.result())
    except grpc.FutureCancelledError:
        # This is not a failure of the service: FailOpen must not allow this call.
        raise CallEndedError from None
    except grpc.RpcError as error:
        return _unanswered(error)
    except ValueError:
        # What grpcio raises on a channel that was closed meanwhile.
        return _CLOSED


def _unanswered(error: Any) -> Unanswered:
    return Unanswered(_CODES[error.code().value[0]], error.details() or "")
