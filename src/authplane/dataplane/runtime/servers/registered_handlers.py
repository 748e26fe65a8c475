"""The handlers that a program adds to its server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import grpc


class Registered:
    """The handlers that a program adds to its server, before or after start, as in grpcio."""

    def __init__(self, handlers: Sequence[grpc.GenericRpcHandler] | None) -> None:
        self.all = tuple(handlers or ())
        """Handlers in the order of lookup."""
        self._named = 0

    def add(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add generic handlers."""
        self.all = (*self.all, *handlers)

    def add_named(self, service: str, methods: Mapping[str, Any]) -> None:
        """Add handlers by name: grpcio looks at these first.

        It does not tell the authority of calls to those that it knows by name, so that to it all are generic.
        """
        made = grpc.method_handlers_generic_handler(service, dict(methods))
        self.all = (*self.all[: self._named], made, *self.all[self._named :])
        self._named += 1


class TakesHandlers:
    """The part of a server that handlers are added to."""

    _handlers: Registered

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add handlers."""
        self._handlers.add(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Add handlers by name."""
        self._handlers.add_named(service_name, method_handlers)
