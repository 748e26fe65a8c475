"""Calls external authorization services, over connections that are kept.

Every failure counts as no answer, and no answer grants nothing.
"""

import asyncio
import contextlib
import itertools
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, assert_never

import grpc
import grpc.aio
import httpcore2
import structlog

from authplane.authserver.backends.runtime.upstream_trust import NobodyTrustedError, trusted_certificates, trusting
from authplane.core.names import ObjectName
from authplane.policy.external_authorization.check_hops import MOST_HOPS, hops_of
from authplane.policy.external_authorization.http_checks import HttpQuestion, build_question, read_answer
from authplane.policy.external_authorization.wire import parse_answer, render_question
from authplane.policy.rules.backend_tls import BackendTls
from authplane.policy.rules.external_service import OverGrpc, OverHttp
from authplane.policy.verdicts.effects import Ask, NoAnswer, Outcome
from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.runtime.clients.careful_network import CarefulNetwork
from authplane.runtime.servers.service_names import SERVICE

_log: Final = structlog.stdlib.get_logger()

_LARGEST_ANSWER: Final = 64 * 1024
_CONNECTIONS: Final = 100
"""To one service at a time."""
_IDLE: Final = 30.0
"""Seconds that an idle connection is kept."""
_GRACE: Final = 5.0
"""Seconds that calls in progress have after the address of a service has changed."""
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", _LARGEST_ANSWER),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}'),
)
_FAILURES: Final = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError, ValueError)


class ServicePort(NamedTuple):
    """A service, its port, and how to verify it; changed TLS settings open new connections."""

    service: ObjectName
    port: int
    tls: BackendTls | None = None
    """None is without TLS."""


class Endpoint(NamedTuple):
    """A place where a service answers: an IP address or a DNS name."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Endpoints: TypeAlias = Mapping[ServicePort, tuple[Endpoint, ...]]


class _Client(Protocol):
    """Asks one service."""

    async def ask(self, ask: Ask, seconds: float) -> Outcome:
        """Return the answer, within so many seconds."""

    async def close(self) -> None:
        """Let go of all connections."""


class ExternalServices:
    """The services that policies name now."""

    def __init__(self, tasks: asyncio.TaskGroup, clock: Callable[[], float] = time.time) -> None:
        self._tasks = tasks
        self._clock = clock
        self._endpoints: Endpoints = {}
        self._clients: dict[tuple[ServicePort, type], _Client] = {}

    def publish(self, endpoints: Endpoints) -> None:
        """Ask these from now on; a service that has not moved keeps its connections."""
        before, self._endpoints = self._endpoints, dict(endpoints)
        for key in [key for key in self._clients if before.get(key[0]) != self._endpoints.get(key[0])]:
            self._tasks.create_task(self._clients.pop(key).close())

    async def ask(self, ask: Ask) -> Outcome:
        """Ask one service; never raises but when it is cancelled."""
        seconds = ask.deadline - self._clock()
        if seconds <= 0:
            return NoAnswer("the check has no time left")
        if hops_of(ask.request) >= MOST_HOPS:
            return NoAnswer("the check was forwarded too often")
        try:
            async with asyncio.timeout(seconds):
                client = await self._client(ask)
                return await client.ask(ask, seconds) if client else NoAnswer("the service has no endpoints")
        except TimeoutError:
            return NoAnswer("the service did not respond in time")
        except NobodyTrustedError as error:
            return NoAnswer(str(error))
        except Exception as error:  # noqa: BLE001 (a failed call must not end a check without a decision)
            _log.error("failed to call an external service", service=str(ask.service.service), error=place_of(error))
            return NoAnswer("internal error")

    async def close(self) -> None:
        """Let go of everything."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def _client(self, ask: Ask) -> _Client | None:
        where = ServicePort(ask.service.service, ask.service.port, ask.service.tls)
        key = (where, type(ask.service.protocol))
        known = self._clients.get(key)
        if known is not None:
            return known
        if not self._endpoints.get(where):
            return None
        make = _grpc_client if isinstance(ask.service.protocol, OverGrpc) else _http_client
        made = await make(where.tls)
        # Others may have been quicker, and the service may have moved meanwhile.
        endpoints = self._endpoints.get(where)
        return self._clients.get(key) or self._clients.setdefault(key, made(endpoints)) if endpoints else None


@asynccontextmanager
async def external_services() -> AsyncGenerator[ExternalServices]:
    """Call services while the block runs."""
    async with owned_tasks() as tasks:
        services = ExternalServices(tasks)
        try:
            yield services
        finally:
            await services.close()


async def _grpc_client(tls: BackendTls | None) -> Callable[[tuple[Endpoint, ...]], _Client]:
    """Read the trusted certificates in a thread, because that would block the event loop; return a client factory."""
    trusted = await asyncio.to_thread(trusted_certificates, tls.ca) if tls is not None else b""
    return lambda endpoints: _GrpcClient(_channel(_target(endpoints), tls, trusted))


async def _http_client(tls: BackendTls | None) -> Callable[[tuple[Endpoint, ...]], _Client]:
    """Do the same for HTTP."""
    if tls is None:
        return lambda endpoints: _HttpClient(endpoints, None, "")
    context = await asyncio.to_thread(trusting, tls.ca)
    return lambda endpoints: _HttpClient(endpoints, context, tls.hostname)


class _GrpcClient:
    """Asks over one channel to all endpoints."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(f"/{SERVICE}/Check")

    async def ask(self, ask: Ask, seconds: float) -> Outcome:
        match ask.service.protocol:
            case OverGrpc() as protocol:
                question = render_question(ask, protocol)
            case OverHttp():
                return NoAnswer("the service uses another protocol")
            case _:
                assert_never(ask.service.protocol)
        try:
            reply = await self._check(question, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return NoAnswer(f"the service failed: {error.code().name}")
        return parse_answer(reply)

    async def close(self) -> None:
        await self._channel.close(_GRACE)


def _channel(target: str, tls: BackendTls | None, trusted: bytes) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    named = (("grpc.ssl_target_name_override", tls.hostname), ("grpc.default_authority", tls.hostname))
    credentials = grpc.ssl_channel_credentials(root_certificates=trusted)
    return grpc.aio.secure_channel(target, credentials, options=(*_OPTIONS, *named))


def _target(endpoints: tuple[Endpoint, ...]) -> str:
    """Write the endpoints as gRPC does: addresses of one family, or a name."""
    if not _is_address(endpoints[0].host):
        return f"dns:///{endpoints[0]}"
    family = "ipv6" if ":" in endpoints[0].host else "ipv4"
    same = [each for each in endpoints if (":" in each.host) == (family == "ipv6")]
    return f"{family}:{','.join(map(str, same))}"


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()


class _HttpClient:
    """Asks the endpoints in turn."""

    def __init__(self, endpoints: tuple[Endpoint, ...], tls: ssl.SSLContext | None, name: str) -> None:
        self._name = name
        """Asked for, and what the certificate must be for; empty without TLS."""
        self._turns: Iterator[Endpoint] = itertools.cycle(endpoints)
        # One more, for a connection that its server has just closed.
        self._tries = len(endpoints) + 1
        self._pool = httpcore2.AsyncConnectionPool(
            network_backend=CarefulNetwork(httpcore2.AnyIOBackend()),
            ssl_context=tls,
            max_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE,
        )
        self._asking = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def ask(self, ask: Ask, seconds: float) -> Outcome:
        self._asking += 1
        self._quiet.clear()
        try:
            return await self._ask(ask, seconds)
        finally:
            self._asking -= 1
            if not self._asking:
                self._quiet.set()

    async def _ask(self, ask: Ask, seconds: float) -> Outcome:
        match ask.service.protocol:
            case OverHttp() as protocol:
                question = build_question(ask, protocol)
            case OverGrpc():
                return NoAnswer("the service uses another protocol")
            case _:
                assert_never(ask.service.protocol)
        if isinstance(question, NoAnswer):
            return question
        why = ""
        for _ in range(self._tries):
            try:
                status, headers, body = await self._exchange(next(self._turns), question, seconds)
            except _FAILURES as error:
                why = type(error).__name__
            else:
                return read_answer(protocol, status, headers, body)
        return NoAnswer(f"the service failed: {why}")

    async def _exchange(
        self, endpoint: Endpoint, question: HttpQuestion, seconds: float
    ) -> tuple[int, list[tuple[str, str]], bytes | None]:
        url = httpcore2.URL(
            scheme=b"https" if self._name else b"http",
            host=endpoint.host.encode("ascii"),
            port=endpoint.port,
            target=question.target.encode(errors="surrogateescape"),
        )
        headers = [(name.encode("ascii"), value.encode(errors="surrogateescape")) for name, value in question.headers]
        extensions: dict[str, Any] = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), seconds)}
        if self._name:
            extensions["sni_hostname"] = self._name
        async with self._pool.stream(
            question.method, url, headers=headers, content=question.body, extensions=extensions
        ) as response:
            body = await _body(response)
            named = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers]
            return response.status, named, body

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await self._quiet.wait()
        await self._pool.aclose()


async def _body(response: httpcore2.Response) -> bytes | None:
    """Read the body, so that the connection can be used again; one that is too long costs it, and is None."""
    parts, size = [], 0
    async for part in response.aiter_stream():
        size += len(part)
        if size > _LARGEST_ANSWER:
            return None
        parts.append(part)
    return b"".join(parts)
