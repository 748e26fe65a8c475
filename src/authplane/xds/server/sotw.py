"""The state-of-the-world variant of the protocol, server side."""

from collections.abc import Mapping
from operator import itemgetter

from authplane.xds.server.request_limits import refusal
from authplane.xds.server.rollout import PATIENCE
from authplane.xds.server.served_types import FULL_SETS, TypeUrl
from authplane.xds.server.snapshot import Snapshot, Versioned, set_version
from authplane.xds.server.stream_messages import Event, Output, SotwRequest, SotwResponse
from authplane.xds.server.stream_session import StreamSession
from authplane.xds.server.subscription import WILDCARD, Answer, Manner, Subscription


class SotwSession(StreamSession[SotwRequest, SotwResponse]):
    """A stream of this variant."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        super().__init__(_compose, patience=patience)
        self._unnamed: set[TypeUrl] = set()
        """Types of which no name was ever given: no name means all."""

    def _refusal(self, request: SotwRequest) -> str | None:
        return refusal(request.type_url, len(request.names))

    def _take(self, request: SotwRequest, type_url: TypeUrl) -> Event | None:
        names = frozenset(request.names) - {WILDCARD}
        explicit = WILDCARD in request.names
        known = self._rollout.subscriptions.get(type_url)
        if known is None and not request.names and type_url in FULL_SETS:
            self._unnamed.add(type_url)
        if known is None:
            self._rollout.subscriptions[type_url] = Subscription(
                type_url=type_url,
                manner=Manner.FULL_SET if type_url in FULL_SETS else Manner.CHANGED_ONLY,
                wildcard=explicit or type_url in self._unnamed,
                names=set(names),
                claimed=request.version,
                owed=type_url in FULL_SETS or bool(request.version),
            )
            return None
        event = self._rollout.answered(self._node or "", known, request.nonce, request.error)
        # A request with a stale nonce crossed our latest response and gets no answer: the client answers that response
        # too, and then repeats every name that it wants. What it leaves out here it has dropped in between.
        if known.sent is not None and request.nonce != known.sent.nonce:
            if not known.wildcard:
                known.replace(names & known.names, wildcard=False)
            return event
        if request.names:
            self._unnamed.discard(type_url)
        known.replace(names, wildcard=explicit or type_url in self._unnamed)
        return event

    def _output(self, now: float, events: tuple[Event, ...] = ()) -> Output[SotwResponse]:
        snapshot = self._rollout.snapshot
        if snapshot is not None:
            for subscription in self._rollout.subscriptions.values():
                if subscription.claimed:
                    _believe(subscription, snapshot)
        return super()._output(now, events)


def _believe(subscription: Subscription, snapshot: Snapshot) -> None:
    """Compare the version that a client brings from an earlier stream with what it would be sent now."""
    existing = subscription.visible(snapshot.collection(subscription.type_url))
    wanted = (
        existing if subscription.wildcard else {name: existing[name] for name in subscription.names & existing.keys()}
    )
    if subscription.claimed == snapshot.version(subscription.type_url, wanted):
        subscription.held = dict(wanted)
        subscription.owed = False
        subscription.asked.clear()
    else:
        subscription.outdated = True
    subscription.claimed = ""


def _compose(subscription: Subscription, answer: Answer, snapshot: Snapshot, nonce: str) -> tuple[SotwResponse, str]:
    existing = snapshot.collection(subscription.type_url)
    held: Mapping[str, Versioned] = subscription.held
    match subscription.manner:
        case Manner.FULL_SET:
            resources = held
        case Manner.CHANGED_ONLY | Manner.INCREMENTAL:
            resources = answer.updated
            # What is gone from the snapshot cannot be taken from the client; its version must not depend on it.
            held = {name: item for name, item in held.items() if name in existing.resources}
    whole = (
        not subscription.refused
        and len(held) == len(existing.resources)
        and all(existing.resources.get(name) is item for name, item in held.items())
    )
    version = existing.version if whole else set_version(held, frozenset(subscription.refused))
    response = SotwResponse(
        type_url=subscription.type_url,
        version=version,
        nonce=nonce,
        resources=tuple(sorted(resources.items(), key=itemgetter(0))),
    )
    return response, version
