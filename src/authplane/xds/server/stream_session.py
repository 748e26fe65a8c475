"""What both variants of the protocol share, server side: one client's stream."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from authplane.xds.server.client_text import clean_node
from authplane.xds.server.node_identity import changed_node
from authplane.xds.server.rollout import PATIENCE, Rollout
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.stream_messages import DeltaRequest, Event, Output, Refused, SotwRequest, Standing
from authplane.xds.server.subscription import Answer, Subscription

Q = TypeVar("Q", bound=SotwRequest | DeltaRequest)
R = TypeVar("R")


class StreamSession(ABC, Generic[Q, R]):
    """One client's stream: requests, snapshots and time go in, responses and events come out."""

    def __init__(
        self, compose: Callable[[Subscription, Answer, Snapshot, str], tuple[R, str]], *, patience: float = PATIENCE
    ) -> None:
        self._rollout: Rollout[R] = Rollout(compose, patience)
        self._node: str | None = None
        self._claimed = ""
        self._closed = False

    @property
    def node(self) -> str | None:
        """The client's id, from its first request on."""
        return self._node

    @property
    def standing(self) -> Standing:
        """What the client says of the present snapshot."""
        return self._rollout.standing()

    def received(self, request: Q, now: float) -> Output[R]:
        """Take a request of the client."""
        if self._closed:
            return Output()
        reason = None if self._node is None else changed_node(self._claimed, request.node)
        if reason is None:
            reason = self._refusal(request)
        if reason is not None:
            self._closed = True
            return Output(events=(Refused(reason=reason),))
        if self._node is None:
            self._claimed = request.node
            self._node = clean_node(request.node)
        event = self._take(request, TypeUrl(request.type_url))
        return self._output(now, () if event is None else (event,))

    def publish(self, snapshot: Snapshot, now: float) -> Output[R]:
        """Take a new snapshot."""
        if self._closed:
            return Output()
        self._rollout.publish(snapshot)
        return self._output(now)

    def due(self) -> float | None:
        """Return when `elapsed` must be called, or None while no time limit runs."""
        return None if self._closed else self._rollout.due()

    def elapsed(self, now: float) -> Output[R]:
        """Go on where a time limit is over."""
        return Output() if self._closed else self._output(now)

    @abstractmethod
    def _refusal(self, request: Q) -> str | None:
        """Say why a request ends the stream, whatever the client; None if it does not."""

    @abstractmethod
    def _take(self, request: Q, type_url: TypeUrl) -> Event | None:
        """Take what a request says of a subscription, and of the response before it."""

    def _output(self, now: float, events: tuple[Event, ...] = ()) -> Output[R]:
        return Output(tuple(self._rollout.advance(now)), events)
