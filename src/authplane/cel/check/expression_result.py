"""The result types of expressions."""

from enum import Enum


class Result(Enum):
    """What the result of an expression must be."""

    BOOL = "bool"
    PERHAPS_BOOL = "bool, or a type that is known only at run time"
    STRING = "string"
