"""Several backends behind one door, each with its own observer."""

from collections.abc import Mapping
from datetime import datetime

from authplane.authserver.backends.backend_choice import Choice
from authplane.authserver.records.runtime.observer import Observer
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Flow


class Choosing:
    """A backend that asks the one of a choice, and knows whose observer is to be told of it.

    Whoever runs a check asks who is responsible as soon as there is a decision or a flow has taken its first step,
    before any other check goes on; so the answer can be kept here until then. ``nobody`` is told of checks for which no
    backend was asked.
    """

    def __init__(self, choice: Choice, observers: Mapping[str, Observer], nobody: Observer) -> None:
        self._choice = choice
        self._observers = observers
        self._nobody = nobody
        self._asked = nobody

    @property
    def name(self) -> str:
        """What logs call it."""
        return self._choice.name

    def decide(self, request: Request, now: datetime) -> Decision | Flow:
        """Judge by the backend that is responsible."""
        picked = self._choice.pick(request)
        if isinstance(picked, Deny):
            return picked
        observer = self._observers[picked.name]
        self._asked = observer
        judged = picked.backend.decide(request, now)
        if isinstance(judged, (Allow, Deny, Unavailable)):
            return judged
        self._asked = self._nobody
        return self._begun(observer, judged)

    def _begun(self, observer: Observer, flow: Flow) -> Flow:
        """Run a flow, which may begin when others have been asked meanwhile."""
        self._asked = observer
        return (yield from flow)

    @property
    def traces(self) -> bool:
        """Whether the caller's trace is of use."""
        return self._nobody.traces

    @property
    def responsible(self) -> Observer:
        """Who is told of the check whose backend was asked last."""
        asked, self._asked = self._asked, self._nobody
        return asked
