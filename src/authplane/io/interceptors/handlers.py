"""Handlers of a server with threads, behind a gate."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import grpc

from authplane.filters.calls import Code, Stop
from authplane.filters.chain import run_chain
from authplane.io.interceptors.contexts import EditedContext
from authplane.io.interceptors.gate import (
    NOT_FOUND,
    STATUSES,
    Gate,
    concluded,
    edits_of,
    trailers_of,
)
from authplane.io.interceptors.judging import CallEndedError, judge
from authplane.io.side_channels import SideChannels

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
MaybeHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"
Behaviour: TypeAlias = Callable[..., Any]

MOST_METHODS: Final = 1024
"""How many wrapped handlers are kept; generic handlers may serve any number of names."""
UNREADABLE: Final = "Exception deserializing request!"
UNWRITTEN: Final = "Failed to serialize response!"
"""What grpcio itself says."""


class Details(NamedTuple):
    """A call as interceptors of users see it: after filters."""

    method: str
    invocation_metadata: Any


class Gated(grpc.GenericRpcHandler):
    """All handlers of a server, behind its gate.

    Interceptors of users come after the filters, so that they see what filters have made of a call.
    """

    def __init__(
        self,
        gate: Gate,
        side: SideChannels,
        handlers: Sequence[grpc.GenericRpcHandler],
        interceptors: Sequence[grpc.ServerInterceptor] = (),
    ) -> None:
        self._gate = gate
        self._side = side
        self._handlers = tuple(handlers)
        self._interceptors = tuple(interceptors)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> MaybeHandler:
        """Return what serves a call; None if there is nothing, and no filter that has a say."""
        method = handler_call_details.method
        found = self._find(handler_call_details)
        if self._gate.rules.passes and not self._interceptors:
            return found
        if found is None:
            # Whoever may not call what is there may not learn what is not there either.
            return self._wrap(None, method)
        known = self._wrapped.get(method)
        if known is not None and known[0] is found:
            return known[1]
        if len(self._wrapped) >= MOST_METHODS:
            self._wrapped.clear()
        made = self._wrap(found, method)
        self._wrapped[method] = (found, made)
        return made

    def _find(self, details: grpc.HandlerCallDetails) -> MaybeHandler:
        for each in self._handlers:
            found = each.service(details)
            if found is not None:
                return found
        return None

    def _wrap(self, found: MaybeHandler, method: str) -> Handler:
        if self._interceptors or found is None:
            return self._late(found, method)
        inner = behaviour_of(found)
        wrapped = _streaming(self, inner, method) if found.response_streaming else _single(self, inner, method)
        for name in ("experimental_non_blocking", "experimental_thread_pool"):
            if hasattr(inner, name):
                setattr(wrapped, name, getattr(inner, name))
        return rebuilt(found, wrapped)

    def _late(self, found: MaybeHandler, method: str) -> Handler:
        """Wrap a handler that interceptors may still replace: its messages stay bytes until they have had their say."""

        def behave(incoming: Any, context: Any) -> Any:
            admitted = self.admit(method, context)
            final = self._intercepted(Details(method, admitted.invocation_metadata()))
            if final is None:
                _end(context, Stop(code=Code.UNIMPLEMENTED, message=NOT_FOUND))
            streamed = found is None or found.request_streaming
            responses = _called(final, incoming if streamed else iter((incoming,)), admitted)
            # A handler with one response may stand where many are expected, and the other way round.
            return responses if found is None or found.response_streaming else next(responses, None)

        if found is None:
            return grpc.stream_stream_rpc_method_handler(behave)
        return handler_like(found, behave)

    def _intercepted(self, details: Any) -> MaybeHandler:
        def step(place: int, seen: Any) -> MaybeHandler:
            if place == len(self._interceptors):
                return self._find(seen)
            return self._interceptors[place].intercept_service(lambda after: step(place + 1, after), seen)

        return step(0, details)

    def admit(self, method: str, context: Any) -> Any:
        """Let filters judge a call; returns the context that its handler sees, or ends the call."""
        gate = self._gate
        call = gate.call(method, context, authority_of(context))
        routed = gate.rules.route(call)
        flow = run_chain(routed.filters, call)
        try:
            verdict = concluded(judge(flow, self._side, context.add_callback), routed)
        except CallEndedError:
            _end(context, Stop(code=Code.CANCELLED, message="the call has ended"))
        if isinstance(verdict, Stop):
            _end(context, verdict)
        edits = edits_of(verdict)
        if edits is None and verdict.metadata is call.metadata:
            return context
        return EditedContext(context, verdict.metadata, edits)


def _single(gated: Gated, inner: Behaviour, method: str) -> Behaviour:
    def behave(request: Any, context: Any) -> Any:
        admitted = gated.admit(method, context)
        response = inner(request, admitted)
        if admitted is not context:
            admitted.respond()
        return response

    return behave


def _streaming(gated: Gated, inner: Behaviour, method: str) -> Behaviour:
    def behave(request: Any, context: Any, *callbacks: Callable[[Any], None]) -> Any:
        admitted = gated.admit(method, context)
        if admitted is context:
            return inner(request, context, *callbacks)
        if not callbacks:
            return _begun(inner(request, admitted), admitted)

        def send(response: Any) -> None:
            if response is not None:
                admitted.respond()
            callbacks[0](response)

        return inner(request, admitted, send)

    return behave


def _begun(responses: Iterator[Any], context: EditedContext) -> Iterator[Any]:
    for response in responses:
        context.respond()
        yield response


def _called(handler: Handler, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    """Call a handler of any kind; bytes go in and come out."""
    deserialize, serialize = handler.request_deserializer, handler.response_serializer

    def read() -> Iterator[Any]:
        for each in requests:
            yield each if deserialize is None else _converted(deserialize, each, context, UNREADABLE)

    if handler.request_streaming:
        argument: Any = read()
    else:
        argument = next(read(), None)
        if argument is None:
            _end(context, Stop(code=Code.UNIMPLEMENTED, message="the method requires exactly one request message"))
    made = behaviour_of(handler)(argument, context)
    for response in made if handler.response_streaming else (made,):
        written = response if serialize is None else _converted(serialize, response, context, UNWRITTEN)
        if isinstance(context, EditedContext):
            context.respond()
        yield written


def _converted(convert: Callable[[Any], Any], message: Any, context: Any, words: str) -> Any:
    try:
        return convert(message)
    except Exception:  # noqa: BLE001 (as grpcio does: the other side sent what is no message)
        _end(context, Stop(code=Code.INTERNAL, message=words))


def _end(context: Any, stop: Stop) -> NoReturn:
    context.set_trailing_metadata(trailers_of(stop))
    context.abort(STATUSES[stop.code], stop.message)
    raise AssertionError


def behaviour_of(handler: Handler) -> Behaviour:
    """Return what a handler does."""
    name = f"{'stream' if handler.request_streaming else 'unary'}_{'stream' if handler.response_streaming else 'unary'}"
    behaviour: Behaviour = getattr(handler, name)
    return behaviour


def handler_like(handler: Handler, behaviour: Behaviour) -> Handler:
    """Return a handler of the same kind whose messages are bytes."""
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


def authority_of(context: Any) -> str | None:
    """Return the authority of a call; grpcio has it for calls that generic handlers serve, and tells nobody."""
    event = getattr(context, "_rpc_event", None)
    host = getattr(getattr(event, "call_details", None), "host", b"")
    return host.decode(errors="replace") if host else None
