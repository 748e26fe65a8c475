"""Several backends behind one door, each with its own observer."""

from collections.abc import Mapping
from datetime import datetime

from authplane.io.observer import Observer
from authplane.policy.choice import Choice
from authplane.policy.decision import Decision, Deny
from authplane.policy.flow import Flow
from authplane.policy.request import Request


class Choosing:
    """A backend that asks the one of a choice, and knows whose observer is to be told of it.

    Whoever runs a check asks who is responsible as soon as the backend has returned, before any other check begins; so
    the answer can be kept here until then. ``nobody`` is told of checks for which no backend was asked.
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
        self._asked = self._observers[picked.name]
        return picked.backend.decide(request, now)

    @property
    def traces(self) -> bool:
        """Whether the caller's trace is of use."""
        return self._nobody.traces

    @property
    def responsible(self) -> Observer:
        """Who is told of the check whose backend was asked last."""
        asked, self._asked = self._asked, self._nobody
        return asked
