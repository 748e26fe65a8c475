"""Checks answered without a front."""

from datetime import datetime

from authplane.authserver.engine.backend import Backend
from authplane.authserver.engine.backend_choice import Choice
from authplane.authserver.engine.check_engine import Answer, CheckEngine, Failed
from authplane.authserver.engine.wire import CheckParser
from authplane.policy.check.request import Malformed, Request


def answer(backend: Backend | Choice, body: bytes, now: datetime) -> Answer:
    """Judge a serialized CheckRequest with a backend that asks for nothing on the way; raises what the backend does."""
    made = CheckEngine(backend).check(body, now)
    if isinstance(made, Failed):
        raise made.error
    assert isinstance(made, Answer)
    return made


def parse_check(body: bytes) -> Request | Malformed:
    """Read a serialized CheckRequest as an engine does that has seen none before."""
    return CheckParser().parse(body)
