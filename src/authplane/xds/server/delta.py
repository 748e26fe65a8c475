"""The incremental variant of the protocol, server side."""

from operator import itemgetter

from authplane.xds.server.request_limits import refusal
from authplane.xds.server.rollout import PATIENCE
from authplane.xds.server.served_types import FULL_SETS, TypeUrl
from authplane.xds.server.snapshot import Snapshot, Versioned
from authplane.xds.server.stream_messages import DeltaRequest, DeltaResponse, Event
from authplane.xds.server.stream_session import StreamSession
from authplane.xds.server.subscription import WILDCARD, Answer, Manner, Subscription


class DeltaSession(StreamSession[DeltaRequest, DeltaResponse]):
    """A stream of this variant."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        super().__init__(_compose, patience=patience)

    def _refusal(self, request: DeltaRequest) -> str | None:
        most = max(len(request.subscribe), len(request.unsubscribe), len(request.initial_versions))
        if (reason := refusal(request.type_url, most)) is not None:
            return reason
        known = self._rollout.subscriptions.get(TypeUrl(request.type_url))
        return None if known is None else refusal(request.type_url, len(known.names.union(request.subscribe)))

    def _take(self, request: DeltaRequest, type_url: TypeUrl) -> Event | None:
        known = self._rollout.subscriptions.get(type_url)
        if known is None:
            self._open(request, type_url)
            return None
        # Whatever the nonce, the change of the subscription counts: the client does not repeat it.
        event = self._rollout.answered(self._node or "", known, request.nonce, request.error)
        if request.unsubscribe:
            known.narrow(request.unsubscribe)
        if request.subscribe:
            known.widen(request.subscribe)
        return event

    def _open(self, request: DeltaRequest, type_url: TypeUrl) -> None:
        names = set(request.subscribe) - {WILDCARD}
        wildcard = WILDCARD in request.subscribe or (not names and type_url in FULL_SETS)
        held = {
            name: Versioned(version, b"")
            for name, version in request.initial_versions.items()
            if wildcard or name in names
        }
        self._rollout.subscriptions[type_url] = Subscription(
            type_url=type_url,
            manner=Manner.INCREMENTAL,
            wildcard=wildcard,
            names=names,
            held=held,
            owed=wildcard and not held,
        )
        if held:
            # Some of it may be gone: that is for the steps that remove.
            self._rollout.restart()


def _compose(subscription: Subscription, answer: Answer, snapshot: Snapshot, nonce: str) -> tuple[DeltaResponse, str]:
    version = snapshot.version(subscription.type_url)
    response = DeltaResponse(
        type_url=subscription.type_url,
        version=version,
        nonce=nonce,
        resources=tuple(sorted(answer.updated.items(), key=itemgetter(0))),
        removed=answer.removed,
    )
    return response, version
