"""What expressions may result in."""

from enum import Enum


class Result(Enum):
    """What the result of an expression must be."""

    BOOL = "bool"
    PERHAPS_BOOL = "bool, or known only when a request comes"
    STRING = "string"
