"""All handlers of a server, behind its gate: what servers with threads and with an event loop share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import grpc

from authplane.dataplane.filters.calls import Call, Code, Effect, Flow, Outcome, Proceed, Stop, Verdict
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.runtime.calls.call_gate import Gate, concluded
from authplane.dataplane.runtime.calls.verdicts import VERDICTS, judge_at_once, judge_on
from authplane.dataplane.runtime.connections.side_channels import CallEndedError
from authplane.dataplane.runtime.servers.registered_handlers import Registered

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
MaybeHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Behaviour: TypeAlias = Callable[..., Any]
Admission: TypeAlias = Generator[Effect, Outcome, Proceed | Stop | None]
"""The filters of a call as a generator: it yields effects and returns the verdict; None if nothing changes."""

NOT_FOUND: Final = Stop(code=Code.UNIMPLEMENTED, message="Method not found!")
"""As grpcio itself says it."""
NO_REQUEST: Final = Stop(code=Code.UNIMPLEMENTED, message="the method requires exactly one request message")
_ENDED: Final = Stop(code=Code.CANCELLED, message="the call has ended")
_MOST_METHODS: Final = 1024
"""How many wrapped handlers are kept; generic handlers may serve any number of names."""


class Details(NamedTuple):
    """A call as interceptors of users see it: after filters."""

    method: str
    invocation_metadata: Any


class Gated(grpc.GenericRpcHandler, ABC):
    """All handlers of a server, behind its gate.

    Interceptors of users come after the filters, so that they see what filters have made of a call.
    """

    def __init__(self, gate: Gate, found: Registered, interceptors: Sequence[Any] = ()) -> None:
        self._gate = gate
        self._found = found
        self._interceptors = tuple(interceptors)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> MaybeHandler:
        """Return what serves a call; None if there is nothing, and no filter that has a say."""
        method = handler_call_details.method
        found = self._find(handler_call_details)
        if self._gate.rules.passes and not self._interceptors:
            return found
        if found is None:
            # A client that may not call existing methods must not learn which methods are missing.
            return self._late(None, method)
        known = self._wrapped.get(method)
        if known is not None and known[0] is found:
            return known[1]
        if len(self._wrapped) >= _MOST_METHODS:
            self._wrapped.clear()
        made = self._late(found, method) if self._interceptors else self._wrap(found, method)
        self._wrapped[method] = (found, made)
        return made

    def begin(self, method: str, context: Any, authority: str | None) -> Admission | None:
        """Run the filters of a call until one has to wait; None if all are done and the call continues unchanged.

        Every call runs through this, on a machine that does other things in between: each step counts several times.
        """
        gate = self._gate
        call = gate.call(method, context, authority)
        routed = gate.rules.route(call)
        flow = run_chain(routed.filters, call)
        begun = judge_at_once(flow)
        if isinstance(begun, Proceed) and routed.stop is None and _changes_nothing(begun, call):
            return None
        return _admission(call, routed, flow, begun)

    @abstractmethod
    def _wrap(self, found: Handler, method: str) -> Handler:
        """Put filters before a handler."""

    @abstractmethod
    def _late(self, found: MaybeHandler, method: str) -> Handler:
        """Wrap a handler that interceptors may still replace: its messages stay bytes until they have had their say."""

    def _find(self, details: Any) -> MaybeHandler:
        for each in self._found.all:
            found = each.service(details)
            if found is not None:
                return found
        return None


def _admission(call: Call, routed: Routed, flow: Flow, begun: Verdict | Effect) -> Admission:
    if not isinstance(begun, VERDICTS):
        try:
            begun = yield from judge_on(flow, begun)
        except CallEndedError:
            return _ENDED
    verdict = concluded(begun, routed)
    return None if isinstance(verdict, Proceed) and _changes_nothing(verdict, call) else verdict


def _changes_nothing(verdict: Proceed, call: Call) -> bool:
    """Tell whether filters let a call go on as it is."""
    return verdict.metadata is call.metadata and not (verdict.response_metadata or verdict.response_mutations)


def behaviour_of(handler: Handler) -> Behaviour:
    """Return what a handler does."""
    name = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    behaviour: Behaviour = getattr(handler, name)
    return behaviour


def handler_like(handler: MaybeHandler, behaviour: Behaviour) -> Handler:
    """Return a handler of the same kind whose messages are bytes; one for any kind of call if there is none."""
    if handler is None:
        return grpc.stream_stream_rpc_method_handler(behaviour)
    return _MAKERS[bool(handler.request_streaming), bool(handler.response_streaming)](behaviour)


def rebuilt(handler: Handler, behaviour: Behaviour) -> Handler:
    """Return a handler of the same kind, with the same messages, that does something else."""
    make = _MAKERS[bool(handler.request_streaming), bool(handler.response_streaming)]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


_MAKERS: Final[dict[tuple[bool, bool], Callable[..., Handler]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
