"""The verdict of a call's filters, for threads and for event loops.

A filter that raises, or returns no verdict, denies the call.
"""

import contextlib
import logging
from collections.abc import Generator
from typing import Final, TypeAlias

from authplane.dataplane.filters.calls import INTERNAL_FAULT, Effect, Flow, Outcome, Proceed, Stop, Verdict
from authplane.dataplane.runtime.connections.side_channels import CallEndedError
from authplane.runtime.child_processes import place_of

_log: Final = logging.getLogger("authplane.grpc")
VERDICTS: Final = (Proceed, Stop)

Judging: TypeAlias = Generator[Effect, Outcome, Verdict]
"""Filters that run: it yields what they wait for, and returns their verdict whatever they do."""


def judge_at_once(flow: Flow) -> Verdict | Effect:
    """Run filters as far as they wait for nothing: most do not."""
    try:
        return next(flow)
    except StopIteration as finished:
        return _checked(finished.value)
    except Exception as error:  # noqa: BLE001 (a filter that fails must not let the call through)
        return _fault(flow, error)


def judge_on(flow: Flow, effect: Effect) -> Judging:
    """Run filters to their end, from the first thing that they wait for; raises `CallEndedError` if it is thrown in."""
    try:
        while True:
            effect = flow.send((yield effect))
    except StopIteration as finished:
        return _checked(finished.value)
    except (CallEndedError, GeneratorExit):
        flow.close()
        raise
    except Exception as error:  # noqa: BLE001 (as above, and as for whatever failed to get what they wait for)
        return _fault(flow, error)


def _checked(verdict: object) -> Verdict:
    if isinstance(verdict, VERDICTS):
        return verdict
    _log.error("filter returned no verdict")
    return INTERNAL_FAULT


def _fault(flow: Flow, error: Exception) -> Verdict:
    _log.error("filter failed: %s", place_of(error))
    with contextlib.suppress(Exception):
        flow.close()
    return INTERNAL_FAULT
