"""Brings one client to a snapshot: additions before removals, each step only after the one before it is answered."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, TypeVar

from authplane.xds.server.lingering.lingering_state import Lingering
from authplane.xds.server.nacks import note_nack
from authplane.xds.server.served_types import BREAK_ORDER, LEFT_TO_CLIENTS, MAKE_ORDER, TypeUrl, XdsName
from authplane.xds.server.snapshot import NO_RESOURCES, Snapshot, same
from authplane.xds.server.stream_messages import Acked, Event, Nacked, Standing
from authplane.xds.server.subscription import Answer, Manner, Scope, Sent, Subscription

PATIENCE: Final = 5.0
"""Seconds that a step waits for a client."""

_STEPS: Final = (
    *((Scope.MAKE, type_url) for type_url in MAKE_ORDER),
    *((Scope.BREAK, type_url) for type_url in BREAK_ORDER),
)
_FIRST_BREAK: Final = len(MAKE_ORDER)
_NOT_BEFORE: Final = {
    TypeUrl.LISTENER: MAKE_ORDER.index(TypeUrl.LISTENER),
    # A listener that warms may be accepted only when it has them.
    TypeUrl.EXTENSION: MAKE_ORDER.index(TypeUrl.LISTENER),
    TypeUrl.ROUTE: MAKE_ORDER.index(TypeUrl.ROUTE),
}
"""Types that a client must not see before what they refer to in the same snapshot, and from which step on it may."""
_FOLLOWING: Final = {
    TypeUrl.CLUSTER: (TypeUrl.ENDPOINT,),
    TypeUrl.LISTENER: (TypeUrl.EXTENSION, TypeUrl.ROUTE),
}
"""After a change of the first type, a client subscribes to new names of the others."""

R = TypeVar("R")


class Rollout(Generic[R]):
    """The plan of one stream. A session feeds it with subscriptions, acknowledgements and snapshots."""

    def __init__(
        self, compose: Callable[[Subscription, Answer, Snapshot, str], tuple[R, str]], patience: float
    ) -> None:
        self.subscriptions: dict[TypeUrl, Subscription] = {}
        self.snapshot: Snapshot | None = None
        self._compose = compose
        self._patience = patience
        self._cursor = len(_STEPS)
        self._refused = False
        self._nonces = 0
        self._expected: dict[TypeUrl, float | None] = {}
        """Types that the client will subscribe to soon, and until when we wait once it is their turn."""
        self._rebuilt: set[str] = set()
        """Clusters that were replaced and whose endpoints the client has not been sent since."""
        self._lingering = Lingering()

    def publish(self, snapshot: Snapshot) -> None:
        """Make this snapshot the target; planning starts again from what the client has."""
        self.snapshot = snapshot
        self._refused = False
        self.restart()

    def restart(self) -> None:
        """Plan again for the same snapshot."""
        self._cursor = 0

    def answered(self, node: str, subscription: Subscription, nonce: str, error: str | None) -> Event | None:
        """Note that the client accepted or refused the response with this nonce; None if that says nothing new."""
        sent = subscription.answered(nonce)
        if sent is None:
            return None
        if error is None:
            if subscription.type_url in LEFT_TO_CLIENTS:
                self._lingering.accepted(sent.updated)
            if sent is not subscription.sent:
                return None
            if subscription.manner is Manner.FULL_SET:
                subscription.refused.clear()
            return Acked(node=node, type_url=subscription.type_url, version=sent.version)
        nack = note_nack(subscription, sent, error)
        self._refused |= bool(sent.taken) or self._still_wanted(subscription)
        for following in _FOLLOWING.get(subscription.type_url, ()):
            self._expected.pop(following, None)
        return Nacked(
            node=node,
            type_url=subscription.type_url,
            version=sent.version,
            names=nack.names,
            message=nack.message,
        )

    def advance(self, now: float) -> list[R]:
        """Return the responses that may go out now."""
        if self.snapshot is None:
            return []
        self._give_up(now)
        responses = self._answer_asked(self.snapshot, now)
        while self._cursor < len(_STEPS):
            scope, type_url = _STEPS[self._cursor]
            if self._cursor == _FIRST_BREAK and any(each.waiting for each in self.subscriptions.values()):
                break
            if scope is Scope.BREAK and self._refused:
                self._cursor = len(_STEPS)
                break
            subscription = self.subscriptions.get(type_url)
            if subscription is not None:
                if subscription.waiting:
                    break
                if response := self._send(subscription, self.snapshot, scope, now):
                    responses.append(response)
                    break
            if scope is Scope.MAKE and self._expects(type_url, self.snapshot, now):
                break
            self._cursor += 1
        self._end_lingering(now)
        return responses + self._answer_asked(self.snapshot, now)

    def due(self) -> float | None:
        """Return when `advance` must be called at the latest, or None while nothing is waited for."""
        limits = [each.sent.deadline for each in self.subscriptions.values() if each.waiting and each.sent]
        limits += [limit for limit in self._expected.values() if limit is not None]
        if (until := self._lingering.until) is not None and self._has_arrived():
            limits.append(until)
        return min(limits, default=None)

    def standing(self) -> Standing:
        """Return what the client says of the snapshot."""
        pending: set[XdsName] = set()
        refused: dict[XdsName, str] = {}
        named = self._named()
        for type_url in TypeUrl:
            collection = self.snapshot.collection(type_url) if self.snapshot else NO_RESOURCES
            subscription = self.subscriptions.get(type_url)
            if subscription is None:
                pending |= {(type_url, name) for name in collection.public} if named is None else set()
                continue
            existing = subscription.visible(collection)
            lacking = subscription.lacking(existing)
            pending |= {(type_url, name) for name in lacking}
            words = subscription.refused
            refused |= {(type_url, name): words[name] for name in words if name in existing and name not in lacking}
        return Standing(pending=frozenset(pending), refused=refused, named=named)

    def _named(self) -> frozenset[XdsName] | None:
        """Return which Listeners the client subscribes to by name; None if it subscribes to all, or to none yet."""
        listeners = self.subscriptions.get(TypeUrl.LISTENER)
        if listeners is None or listeners.wildcard:
            return None
        return frozenset((TypeUrl.LISTENER, name) for name in listeners.names)

    def _has_arrived(self) -> bool:
        """Tell whether the client has taken all steps and uses none of what is old."""
        waits = any(each.waiting for each in self.subscriptions.values())
        return self._cursor == len(_STEPS) and not self._refused and not waits

    def _end_lingering(self, now: float) -> None:
        until = self._lingering.until
        if until is None or now < until or not self._has_arrived():
            return
        self._lingering.end()
        for type_url in LEFT_TO_CLIENTS:
            if (subscription := self.subscriptions.get(type_url)) is not None:
                subscription.asked |= subscription.held.keys()

    def _give_up(self, now: float) -> None:
        for subscription in self.subscriptions.values():
            if subscription.sent is not None and subscription.sent.deadline <= now:
                subscription.sent.overdue = True
        self._expected = {type_url: limit for type_url, limit in self._expected.items() if limit is None or limit > now}

    def _answer_asked(self, snapshot: Snapshot, now: float) -> list[R]:
        responses = []
        self._ask_for_rebuilt()
        for type_url in MAKE_ORDER:
            subscription = self.subscriptions.get(type_url)
            if subscription is None or subscription.waiting or self._cursor < _NOT_BEFORE.get(type_url, 0):
                continue
            if (subscription.asked or subscription.unanswered or subscription.owed) and (
                response := self._send(subscription, snapshot, Scope.ASKED, now)
            ):
                responses.append(response)
        return responses

    def _ask_for_rebuilt(self) -> None:
        # Envoy builds a changed cluster anew and uses it only when its endpoints, which we serve under the cluster's
        # name, have come once more. It asks again in one variant and not at all in the other, and accepts the clusters
        # only then.
        endpoints = self.subscriptions.get(TypeUrl.ENDPOINT)
        if endpoints is not None and self._rebuilt:
            endpoints.asked |= self._rebuilt & endpoints.held.keys()
            self._rebuilt.clear()

    def _send(self, subscription: Subscription, snapshot: Snapshot, scope: Scope, now: float) -> R | None:
        type_url = subscription.type_url
        answer = subscription.answer(subscription.visible(snapshot.collection(type_url)), scope)
        if answer is None:
            return None
        if type_url in LEFT_TO_CLIENTS:
            # The routes that the client has may name what is gone, and those of draining connections for longer.
            answer = replace(answer, updated=self._lingering.widen(answer.updated, now))
        self._nonces += 1
        nonce = str(self._nonces)
        if type_url is TypeUrl.CLUSTER:
            known = answer.updated if subscription.outdated else subscription.held
            self._rebuilt |= answer.updated.keys() & known.keys()
        gone = answer.removed if scope is Scope.BREAK else ()
        taken = {name: item for name in gone if (item := subscription.held.get(name)) is not None}
        subscription.record(answer)
        response, version = self._compose(subscription, answer, snapshot, nonce)
        full = subscription.manner is Manner.FULL_SET
        sent = Sent(
            nonce=nonce,
            version=version,
            names=tuple(subscription.held) if full else (*answer.updated, *answer.removed),
            updated=answer.updated,
            taken=taken,
            deadline=now + self._patience,
        )
        subscription.replace_sent(sent)
        # A client that names its clusters or listeners does not subscribe to all endpoints or routes.
        if answer.updated and subscription.wildcard:
            self._expected |= dict.fromkeys(_FOLLOWING.get(type_url, ()))
        return response

    def _expects(self, type_url: TypeUrl, snapshot: Snapshot, now: float) -> bool:
        if type_url not in self._expected:
            return False
        names = snapshot.resources(type_url)
        subscription = self.subscriptions.get(type_url)
        if not names or (subscription is not None and subscription.covers(names)):
            del self._expected[type_url]
            return False
        if self._expected[type_url] is None:
            self._expected[type_url] = now + self._patience
        return True

    def _still_wanted(self, subscription: Subscription) -> bool:
        """Tell whether anything refused is part of the present target: then the client keeps using what is old."""
        if self.snapshot is None:
            return False
        existing = self.snapshot.resources(subscription.type_url)
        return any(
            name in existing and same(subscription.held.get(name), existing[name]) for name in subscription.refused
        )
