"""What is wrong with an expression, and where in its text."""

from enum import StrEnum

from authplane.core.values import dataclass


class Reason(StrEnum):
    """Why an expression is not taken."""

    SYNTAX = "Syntax"
    UNDECLARED = "Undeclared"
    """It names a variable, member or function that does not exist here."""
    NOT_ALLOWED = "NotAllowed"
    """It uses a part of the language that is not offered here."""
    TYPE = "Type"
    NOT_BOOL = "NotBool"
    TOO_LARGE = "TooLarge"
    TOO_COSTLY = "TooCostly"
    REGEX = "Regex"
    SHADOWING = "Shadowing"
    """A macro's variable has a name that means something else already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CelProblem:
    """One thing wrong with an expression. Its message quotes the expression only, never data."""

    reason: Reason
    message: str
    line: int = 1
    column: int = 1
    """Counted in characters, from 1."""

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}"


def position(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column of a character, both from 1."""
    before = text[: max(0, offset)]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def problem_at(text: str, offset: int, reason: Reason, message: str) -> CelProblem:
    """Build a problem with the character at ``offset``."""
    line, column = position(text, offset)
    return CelProblem(reason=reason, message=message, line=line, column=column)
