"""Inputs that trees read from a call, and tests of texts."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import Final, Protocol, assert_never

from authplane.core.values import dataclass
from authplane.matching.string_matchers import Contains, Exact, Prefix, Regex, StringMatcher, Suffix, as_test


class HasHeaders(Protocol):
    """A call, as far as its headers go."""

    @property
    def path(self) -> str:
        """``/package.Service/Method``."""

    @property
    def authority(self) -> str | None:
        """None if it is unknown."""

    @property
    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Keys in lower case; the values of ``-bin`` keys are bytes."""


KNOWN: Final[Mapping[str, Callable[[HasHeaders], str | None]]] = {
    ":path": attrgetter("path"),
    ":authority": attrgetter("authority"),
    "host": attrgetter("authority"),
    ":method": lambda _: "POST",
    "content-type": lambda _: "application/grpc",
    "te": lambda _: None,
}
"""What reads headers that are not as in the metadata, by their names."""


def read_header(name: str, subject: HasHeaders) -> str | None:
    """Return the value of a header, by its name in lower case, as gRFC A41 has it; None without such a header.

    Several values are joined by commas, and those of ``-bin`` headers are base64. ``host`` is another name for
    ``:authority``. ``te`` belongs to the connection and is never there. The library does not tell the content type of a
    call, so that it is always that of gRPC.
    """
    known = KNOWN.get(name)
    if known is not None:
        return known(subject)
    found = [value for key, value in subject.metadata if key == name]
    if not found:
        return None
    return _text(found[0]) if len(found) == 1 else ",".join(map(_text, found))


@dataclass(frozen=True, slots=True)
class HeaderInput:
    """The value of a header, as `read_header` finds it."""

    name: str
    """In lower case."""

    def read(self, subject: HasHeaders) -> str | None:
        """Return the value, or None without such a header."""
        return read_header(self.name, subject)

    def __str__(self) -> str:
        return f"header {self.name}"


@dataclass(frozen=True, slots=True)
class TextMatcher:
    """Asks something of a text."""

    matcher: StringMatcher
    _test: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_test", as_test(self.matcher))

    def matches(self, value: str) -> bool:
        """Tell whether the text matches."""
        return self._test(value)

    def __str__(self) -> str:
        match self.matcher:
            case Exact(value, ignore_case):
                return f"is {value!r}{_case(ignore_case)}"
            case Prefix(value, ignore_case):
                return f"begins with {value!r}{_case(ignore_case)}"
            case Suffix(value, ignore_case):
                return f"ends with {value!r}{_case(ignore_case)}"
            case Contains(value, ignore_case):
                return f"contains {value!r}{_case(ignore_case)}"
            case Regex(pattern):
                return f"matches {pattern!r}"
            case _:
                assert_never(self.matcher)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else b64encode(value).rstrip(b"=").decode()


def _case(ignore_case: bool) -> str:
    return " (ignoring case)" if ignore_case else ""
