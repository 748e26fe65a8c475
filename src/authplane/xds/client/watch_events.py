"""Events for watchers."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, Generic, TypeAlias, TypeVar

from authplane.core.values import dataclass

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Trouble(Enum):
    """Kinds of faults."""

    NOT_FOUND = auto()
    """The resource does not exist, or no longer."""
    INVALID = auto()
    """We refused what the server sent."""
    REPORTED = auto()
    """The server says that it cannot send the resource."""
    SLOW = auto()
    """The server has not sent the resource in time, and would have said if it did not exist."""
    UNREACHABLE = auto()
    """No server can be reached."""
    NAME = auto()
    """The name is malformed, or of an authority that the bootstrap does not know."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a resource is not there, or not up to date.

    Whatever the fault, calls that need the resource fail UNAVAILABLE: a fault has no status code, so none of the
    control plane's can reach a caller.
    """

    trouble: Trouble
    message: str


@dataclass(frozen=True, slots=True)
class Changed(Generic[T_co]):
    """The resource is this from now on; ambient faults of before are over."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no resource to use, from now on."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Ambient:
    """The resource stays in use, though something is wrong; None says that nothing is wrong any more."""

    fault: Fault | None


Event: TypeAlias = Changed[T] | Failed | Ambient


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a watcher knows when it has heard all events; neither means that it waits."""

    value: object | None = None
    fault: Fault | None = None


NOTHING: Final = View()


def events_between(before: View, after: View) -> Iterator[Event[object]]:
    """Tell what a watcher that knows one view must hear to know the other."""
    if after.value is None:
        if after.fault is not None and (before.value is not None or before.fault != after.fault):
            yield Failed(after.fault)
        return
    fresh = before.value is None or (before.value is not after.value and before.value != after.value)
    if fresh:
        yield Changed(after.value)
    if (after.fault is not None) if fresh else (after.fault != before.fault):
        yield Ambient(after.fault)
