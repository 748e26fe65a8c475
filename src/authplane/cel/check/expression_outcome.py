"""The outcome of an expression for a request."""

from enum import StrEnum
from typing import Final, TypeAlias

from authplane.core.values import dataclass


class Code(StrEnum):
    """Why an expression says nothing. Names of metrics and reasons in logs are made of it."""

    NO_SUCH_KEY = "no_such_key"
    NO_SUCH_OVERLOAD = "no_such_overload"
    INDEX_OUT_OF_RANGE = "index_out_of_range"
    ARITHMETIC = "arithmetic"
    CONVERSION = "conversion"
    REGEX = "regex"
    TOO_COSTLY = "too_costly"
    NOT_BOOL = "not_bool"
    NUL_IN_INPUT = "nul_in_input"
    NOT_UNICODE = "not_unicode"
    STRING_TOO_LONG = "string_too_long"
    INPUT_TOO_LARGE = "input_too_large"
    NUMBER_OUT_OF_RANGE = "number_out_of_range"
    WRONG_TYPE = "wrong_type"
    TRIPPED = "tripped"
    EVALUATION_FAILED = "evaluation_failed"


SENTENCES: Final = {
    Code.NO_SUCH_KEY: "a field that the expression reads is missing",
    Code.NO_SUCH_OVERLOAD: "a value has the wrong type for the expression",
    Code.INDEX_OUT_OF_RANGE: "a list index is out of range",
    Code.ARITHMETIC: "a calculation overflows or divides by zero",
    Code.CONVERSION: "a value cannot be converted",
    Code.REGEX: "a regular expression is invalid",
    Code.TOO_COSTLY: "the evaluation exceeds the step limit",
    Code.NOT_BOOL: "the result is not a bool",
    Code.NUL_IN_INPUT: "the input contains a NUL character",
    Code.NOT_UNICODE: "the input contains text that is not valid Unicode",
    Code.STRING_TOO_LONG: "the input contains a string that is too long",
    Code.INPUT_TOO_LARGE: "the input is too large",
    Code.NUMBER_OUT_OF_RANGE: "the input contains a number that is out of range",
    Code.WRONG_TYPE: "the input contains a value of an unexpected type",
    Code.TRIPPED: "the expression is suspended because it was too slow too often",
    Code.EVALUATION_FAILED: "the expression cannot be evaluated",
}


@dataclass(frozen=True, slots=True)
class Holds:
    """The expression is true. Nothing else grants anything."""


@dataclass(frozen=True, slots=True)
class HoldsNot:
    """The expression is false."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The expression is neither: never taken for true, nor for false under a negation."""

    code: Code

    @property
    def message(self) -> str:
        """A sentence without anything of the data, which may be secret."""
        return SENTENCES[self.code]


Outcome: TypeAlias = Holds | HoldsNot | Failed

HOLDS: Final = Holds()
HOLDS_NOT: Final = HoldsNot()
