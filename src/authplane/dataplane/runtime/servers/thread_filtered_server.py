"""A server with threads whose filters the program names in code."""

import threading

import grpc

from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.connections.side_channels import SideChannels
from authplane.dataplane.runtime.servers.filtered_ports import FilteredPorts
from authplane.dataplane.runtime.servers.registered_handlers import Registered


class FilteredServer(FilteredPorts, grpc.Server):
    """A server that runs filters before each call."""

    _inner: grpc.Server

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

    def start(self) -> None:
        """Begin to serve."""
        self._inner.add_generic_rpc_handlers((self._gated,))
        self._inner.start()

    def stop(self, grace: float | None) -> threading.Event:
        """Accept no more calls; those in progress have ``grace`` seconds. Returns an event that is set when all end."""
        ended = self._inner.stop(grace)
        if ended.is_set():
            self._side.close()
        else:
            threading.Thread(target=self._close_after, args=(ended,), name="side channels", daemon=True).start()
        return ended

    def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; returns whether the time was over before that."""
        return self._inner.wait_for_termination(timeout)

    def _close_after(self, ended: threading.Event) -> None:
        ended.wait()
        self._side.close()
