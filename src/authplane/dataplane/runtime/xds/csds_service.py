"""Client status discovery (CSDS): shows the configuration of the xDS clients of this process, for debugging.

By default, peers on this machine and peers with a verified certificate may read it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import grpc
import grpc.aio

from authplane.core.addresses import is_loopback
from authplane.dataplane.runtime.xds.xds_client import XdsClient, XdsClientThread
from authplane.xds.client.resource_cache import ClientDump
from authplane.xds.csds.wire import parse_status_request, render_status

SERVICE: Final = "envoy.service.status.v3.ClientStatusDiscoveryService"

AuthContext: TypeAlias = Mapping[str, object]
Permitted: TypeAlias = Callable[[str, AuthContext], bool]
"""Tells whether a peer may read the status, by its address and identity."""
Clients: TypeAlias = Callable[[], Iterable[XdsClient | XdsClientThread]]
"""The clients there are at a time."""
ThreadedClients: TypeAlias = Callable[[], Iterable[XdsClientThread]]


def local_or_certified(peer: str, auth_context: AuthContext) -> bool:
    """Permit peers on this machine, and peers with a verified certificate."""
    if auth_context.get("x509_pem_cert"):
        return True
    family, _, address = unquote(peer).partition(":")
    if family in {"unix", "unix-abstract"}:
        return True
    return family in {"ipv4", "ipv6"} and is_loopback(address.rpartition(":")[0].strip("[]"))


class _RefusedError(Exception):
    """Raised for a request that gets no answer."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code: Final = code
        self.details: Final = details


def csds_service(clients: ThreadedClients, *, permitted: Permitted = local_or_certified) -> grpc.GenericRpcHandler:
    """Serve on a synchronous server."""

    def fetch(body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            contents = _wants_contents(body, context.peer(), context.auth_context(), permitted)
        except _RefusedError as refused:
            context.abort(refused.code, refused.details)
        return render_status(_dumps(clients()), contents=contents)

    def stream(bodies: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for body in bodies:
            yield fetch(body, context)

    return _service(fetch, stream)


def aio_csds_service(clients: Clients, *, permitted: Permitted = local_or_certified) -> grpc.GenericRpcHandler:
    """Serve on an asynchronous server; clients without a thread of their own are of its event loop."""

    async def fetch(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            contents = _wants_contents(body, context.peer(), context.auth_context(), permitted)
        except _RefusedError as refused:
            await context.abort(refused.code, refused.details)
            raise AssertionError("abort() always raises") from refused
        found = list(clients())
        dumps = [each.dump() for each in found if isinstance(each, XdsClient)]
        dumps += await asyncio.to_thread(_dumps, [each for each in found if isinstance(each, XdsClientThread)])
        return render_status(dumps, contents=contents)

    async def stream(
        bodies: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        async for body in bodies:
            yield await fetch(body, context)

    return _service(fetch, stream)


def _service(fetch: Callable[..., Any], stream: Callable[..., Any]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "FetchClientStatus": grpc.unary_unary_rpc_method_handler(fetch),
            "StreamClientStatus": grpc.stream_stream_rpc_method_handler(stream),
        },
    )


def _wants_contents(body: bytes, peer: str, auth_context: AuthContext, permitted: Permitted) -> bool:
    if not permitted(peer, auth_context):
        raise _RefusedError(grpc.StatusCode.PERMISSION_DENIED, "this peer may not read the client status")
    request = parse_status_request(body)
    if request is None:
        raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a ClientStatusRequest")
    if request.matches_nodes:
        raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "node_matchers are not supported")
    return not request.without_contents


def _dumps(clients: Iterable[XdsClientThread]) -> list[ClientDump]:
    found = []
    for client in clients:
        try:
            found.append(client.dump())
        except TimeoutError:
            # It is being closed.
            continue
    return found
