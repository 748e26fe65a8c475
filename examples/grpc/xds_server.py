"""A server that a control plane configures: its address, and who may call it."""

import asyncio
from typing import Any

import grpc.aio

import authplane.grpc.aio
from authplane.grpc import ServingState, XdsSource


async def say(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    """Return the request."""
    return request


def show(state: ServingState) -> None:
    """Print whether the server serves, and why not."""
    print(state, flush=True)


async def serve(xds: XdsSource = True, address: str = "0.0.0.0:50051") -> None:
    """Serve while the control plane has a Listener for the address."""
    handlers: dict[str, Any] = {"Say": grpc.unary_unary_rpc_method_handler(say)}
    server = authplane.grpc.aio.server(
        handlers=[grpc.method_handlers_generic_handler("example.Echo", handlers)],
        xds=xds,
        default_authority="echo.example",
        on_serving_state=show,
    )
    server.add_insecure_port(address)
    await server.start()
    try:
        await server.wait_for_termination()
    finally:
        await server.stop(grace=5)


if __name__ == "__main__":
    asyncio.run(serve())
