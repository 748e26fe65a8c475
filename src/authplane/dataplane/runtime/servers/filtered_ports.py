"""The ports of a server whose filters the program names in code."""

from typing import Any

import grpc

from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.local_addresses import parse_bound
from authplane.dataplane.runtime.servers.registered_handlers import TakesHandlers
from authplane.dataplane.runtime.servers.xds_ports import refuse_xds


class FilteredPorts(TakesHandlers):
    """The part of a server that ports are added to, with threads or with an event loop."""

    _inner: Any
    """The server that listens."""
    _gate: Gate

    def add_insecure_port(self, address: str) -> int:
        """Listen on an address; returns the port that was taken."""
        return self._bound(address, None, self._inner.add_insecure_port(address))

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Listen on an address with TLS; returns the port that was taken."""
        refuse_xds(server_credentials)
        self._gate.secured = True
        return self._bound(address, server_credentials, self._inner.add_secure_port(address, server_credentials))

    def _bound(self, address: str, credentials: grpc.ServerCredentials | None, port: int) -> int:
        """Record a port that the server listens on."""
        del credentials
        self._gate.addresses.bind(parse_bound(address, port))
        return port
