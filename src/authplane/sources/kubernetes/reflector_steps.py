"""What a reflector wants done next, what it found, and where it stands."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from authplane.core.names import ObjectName
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPage:
    """Step: send this GET; `Reflector.page` takes an answer of 200."""

    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWatch:
    """Step: send this GET; `Reflector.line` takes each line of an answer of 200, while `Reflector.watching`."""

    path: str
    query: Mapping[str, str]
    silence: float
    """After so many seconds without data the connection is dead."""


@dataclass(frozen=True, slots=True)
class Discover:
    """Step: send this GET; `Reflector.discovered` takes the answer, whatever its status."""

    path: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Step: do nothing until this time."""

    until: float


Step: TypeAlias = FetchPage | OpenWatch | Discover | Pause


@dataclass(frozen=True, slots=True)
class Put:
    """An object is new or another than before."""

    name: ObjectName
    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gone:
    """An object is not there any more; it may have come and gone between two lists."""

    name: ObjectName


Change: TypeAlias = Put | Gone


@dataclass(frozen=True, slots=True)
class Pending:
    """There was no complete list yet."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects are known as of some time, and changes are followed."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The API server does not permit it."""

    verb: str


@dataclass(frozen=True, slots=True)
class Absent:
    """The API server does not have the kind: its CRD is not installed."""


Standing: TypeAlias = Pending | Listed | Forbidden | Absent
