"""A server with threads whose filters the program names itself."""

import threading

import grpc

from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.call_parts import Registered, TakesHandlers
from authplane.dataplane.runtime.calls.local_addresses import parse_bound
from authplane.dataplane.runtime.connections.side_channels import SideChannels
from authplane.dataplane.runtime.servers.ports import refuse_xds


class FilteredServer(TakesHandlers, grpc.Server):
    """Serves as the server in it does, and lets filters judge every call first."""

    def __init__(
        self,
        inner: grpc.Server,
        gate: Gate,
        side: SideChannels,
        handlers: Registered,
        gated: grpc.GenericRpcHandler,
    ) -> None:
        self._inner = inner
        self._gate = gate
        self._side = side
        self._handlers = handlers
        self._gated = gated

    def add_insecure_port(self, address: str) -> int:
        """Listen on an address; returns the port that was taken."""
        return self._bound(address, self._inner.add_insecure_port(address))

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Listen on an address with TLS; returns the port that was taken."""
        refuse_xds(server_credentials)
        self._gate.secured = True
        return self._bound(address, self._inner.add_secure_port(address, server_credentials))

    def start(self) -> None:
        """Begin to serve."""
        self._inner.add_generic_rpc_handlers((self._gated,))
        self._inner.start()

    def stop(self, grace: float | None) -> threading.Event:
        """Take no more calls; those under way have so many seconds. Returns what is set when all have ended."""
        ended = self._inner.stop(grace)
        if ended.is_set():
            self._side.close()
        else:
            threading.Thread(target=self._close_after, args=(ended,), name="side channels", daemon=True).start()
        return ended

    def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether the time was over before that."""
        return self._inner.wait_for_termination(timeout)

    def _bound(self, address: str, port: int) -> int:
        self._gate.addresses.bind(parse_bound(address, port))
        return port

    def _close_after(self, ended: threading.Event) -> None:
        ended.wait()
        self._side.close()
