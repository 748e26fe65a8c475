"""One of the servers that ``grpc_servers`` compares: ``python -m bench.grpc_program STACK VARIANT CHECK CONTROL``.

It prints its port, and once more when it serves.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import grpc.aio
from envoy.service.auth.v3 import external_auth_pb2

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import Caching, ExtAuthzOptions, filter_registry

SERVICE: Final = "bench.Echo"
CHECK: Final = "/envoy.service.auth.v3.Authorization/Check"
_THREADS: Final = 16


def _bootstrap(control: str) -> dict[str, Any]:
    features = ["xds_v3", "trusted_xds_server"]
    server = {"server_uri": control, "channel_creds": [{"type": "insecure"}], "server_features": features}
    return {"xds_servers": [server], "server_listener_resource_name_template": "server/%s"}


def _handlers(behave: Any) -> list[grpc.GenericRpcHandler]:
    return [
        grpc.method_handlers_generic_handler(SERVICE, {"Say": grpc.unary_unary_rpc_method_handler(behave)}),
    ]


def _check_of(context: Any, method: str) -> bytes:
    """Write a check with the same content, as somebody would who needs nothing else."""
    message = external_auth_pb2.CheckRequest()
    host, _, port = context.peer().removeprefix("ipv4:").rpartition(":")
    source = message.attributes.source.address.socket_address
    source.address, source.port_value = host, int(port)
    http = message.attributes.request.http
    http.method, http.path, http.size, http.protocol = "POST", method, -1, "HTTP/2"
    message.attributes.request.time.GetCurrentTime()
    for key, value in context.invocation_metadata():
        http.header_map.headers.add(key=key, raw_value=value.encode() if isinstance(value, str) else value)
    return message.SerializeToString()


def _registry(variant: str) -> Any:
    caching = Caching(allow_ttl=3600, headers=("x-user",)) if variant == "cached" else None
    return filter_registry(ext_authz=ExtAuthzOptions(caching=caching))


# --- With an event loop


class _AioByHand(grpc.aio.ServerInterceptor):
    """Does one check for each call, as it would be written by hand."""

    def __init__(self, target: str) -> None:
        self._check: Any = grpc.aio.insecure_channel(target).unary_unary(CHECK)

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        inner, method = handler.unary_unary, handler_call_details.method

        async def behave(request: Any, context: Any) -> Any:
            reply = await self._check(_check_of(context, method), timeout=1)
            if external_auth_pb2.CheckResponse.FromString(reply).status.code:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, "denied")
            return await inner(request, context)

        return grpc.unary_unary_rpc_method_handler(behave, handler.request_deserializer, handler.response_serializer)


async def _aio(variant: str, check: str, control: str) -> None:
    async def say(request: bytes, _: Any) -> bytes:
        return request

    if variant in {"bare", "by hand"}:
        interceptors = [_AioByHand(check)] if variant == "by hand" else None
        server: Any = grpc.aio.server(None, _handlers(say), interceptors)
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        await server.start()
    else:
        server = authplane.grpc.aio.server(
            None, _handlers(say), xds=_bootstrap(control), registry=_registry(variant), default_authority="bench"
        )
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        await server.start()
        await server.wait_until_serving(20)
    print("serves", flush=True)
    await server.wait_for_termination()


# --- With threads


class _ByHand(grpc.ServerInterceptor):
    """Does one check for each call, as it would be written by hand."""

    def __init__(self, target: str) -> None:
        self._check: Any = grpc.insecure_channel(target).unary_unary(CHECK)

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler: Any = continuation(handler_call_details)
        inner, method = handler.unary_unary, handler_call_details.method

        def behave(request: Any, context: Any) -> Any:
            reply = self._check(_check_of(context, method), timeout=1)
            if external_auth_pb2.CheckResponse.FromString(reply).status.code:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "denied")
            return inner(request, context)

        return grpc.unary_unary_rpc_method_handler(behave, handler.request_deserializer, handler.response_serializer)


def _threads(variant: str, check: str, control: str) -> None:
    def say(request: bytes, _: Any) -> bytes:
        return request

    pool = ThreadPoolExecutor(_THREADS)
    if variant in {"bare", "by hand"}:
        interceptors: Any = [_ByHand(check)] if variant == "by hand" else None
        server: Any = grpc.server(pool, _handlers(say), interceptors)
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        server.start()
    else:
        server = authplane.grpc.server(pool, _handlers(say), xds=_bootstrap(control), registry=_registry(variant))
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        server.start()
        server.wait_until_serving(20)
    print("serves", flush=True)
    server.wait_for_termination()


def main() -> None:
    """Run a server until it is ended."""
    stack, variant, check, control = sys.argv[1:]
    if stack == "aio":
        asyncio.run(_aio(variant, check, control))
    else:
        _threads(variant, check, control)


if __name__ == "__main__":
    main()
