"""A server that sends a check to an authorization service for each call."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from authplane.grpc import Caching, ext_authz, server


def say(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Answer with the name that the authorization service gave the caller."""
    names = dict(context.invocation_metadata())
    return b"hello " + str(names.get("x-user", "stranger")).encode()


def make(authorization: str) -> grpc.Server:
    """Make the server; it sends checks to this target."""
    handlers: dict[str, Any] = {"Say": grpc.unary_unary_rpc_method_handler(say)}
    return server(
        ThreadPoolExecutor(8),
        [grpc.method_handlers_generic_handler("example.Echo", handlers)],
        filters=[ext_authz(authorization, credentials=None, cache=Caching(headers=("x-team",)))],
    )


if __name__ == "__main__":
    made = make("localhost:9001")
    made.add_insecure_port("127.0.0.1:50051")
    made.start()
    made.wait_for_termination()
