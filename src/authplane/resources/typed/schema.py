"""How a kind describes its fields.

A kind is a frozen dataclass. The annotation of a field says what the document may contain; a field without a default is
required; the name in the document is the field's name in camelCase. `Annotated` adds the limits below. The class
variable ``UPSTREAM`` names the fields that the upstream kind has and we do not model; ``SHORTHAND`` names the field
that receives a text where the document has no mapping.
"""

from re import Pattern
from typing import TypeAlias

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """An integer between two bounds, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Length:
    """A text or a list with at least and at most so many characters or items."""

    low: int
    high: int | None = None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneNumberOf:
    """One of these numbers."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """A text that a pattern matches whole; ``example`` is shown to who wrote another."""

    pattern: Pattern[str]
    example: str
    what: str = "a name"


@dataclass(frozen=True, slots=True)
class Base64:
    """A text in the document that is bytes for us, kept as a `Secret`: the values of ``Secret.data``."""


@dataclass(frozen=True, slots=True)
class Named:
    """The field has another name in the document than camelCase gives."""

    name: str


@dataclass(frozen=True, slots=True)
class Filled:
    """The field may be left out, but not be there and empty: a file that was cut off there must not mean "without"."""


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """A list that may also be written as its only item; an empty mapping is an empty list then."""


@dataclass(frozen=True, slots=True)
class Given:
    """A Boolean that says whether the document has the field, whatever its value. Readers must not ignore it."""


@dataclass(frozen=True, slots=True)
class Unused:
    """The field is checked and has no effect, which a warning says: ``Upstream.ignored`` with an eye on the value."""


Limit: TypeAlias = Range | Length | OneOf | OneNumberOf | Matches | Base64 | Named | Filled | OneOrMany | Given | Unused


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Fields of the upstream kind that we do not model."""

    silent: tuple[str, ...] = ()
    """They do not concern us: accepted without a word."""

    ignored: tuple[str, ...] = ()
    """They would change behaviour, not protection: a warning names them."""

    refused: tuple[str, ...] = ()
    """They would restrict access and we do not enforce them: an error, so that nothing is open by accident."""
