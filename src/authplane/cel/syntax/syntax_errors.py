"""The parser's reports about syntax, in words for authors of policies: what was expected, and what is there instead."""

import re
from typing import Final

_EXPECTED: Final = re.compile(r"'([^']+)'")

_END: Final = "<EOF>"
_VALUE: Final = "a value such as a name, a string or a number"
_OPERATOR: Final = "an operator such as && or ==, or the end"
_INSTEAD: Final = {
    "and": "Write && instead of and.",
    "or": "Write || instead of or.",
    "=": "Write == to compare.",
    "&": "Write &&.",
    "|": "Write ||.",
    "is": "Write == to compare.",
    "if": "Write condition ? value : other value.",
    ";": "Join conditions with && or ||.",
}
_QUOTES: Final = ('"', "'")
_FOLLOWS: Final = "<<nil>> parsetree"


def reword_syntax(said: str) -> str:
    """Say what the parser expected and what it found; empty for what only follows from another error."""
    if _FOLLOWS in said:
        return ""
    bare = said.removeprefix("Syntax error: ")
    for pattern, words in _WORDS:
        if found := pattern.fullmatch(bare):
            return words(found)
    return f"{bare}. Correct the expression."


def _found(report: re.Match[str]) -> str:
    return _expected(_expectation(report[2]), report[1])


def _missing(report: re.Match[str]) -> str:
    return _expected(f"'{report[1]}'", report[2])


def _unfit(report: re.Match[str]) -> str:
    wanted = "the name of a member after the dot" if report[1] == "." else _VALUE
    return _expected(wanted, report[2] or _END)


def _unknown(report: re.Match[str]) -> str:
    token = report[1].strip()
    if token.startswith(_QUOTES):
        return f"Expected a string that ends on its line and has valid escapes; found {token}."
    return _with_remedy(f"Expected a part of an expression; found '{token}'.", token)


def _reserved(report: re.Match[str]) -> str:
    said = f"'{report[1]}' is a reserved word and cannot be a name."
    return _with_remedy(said, report[1]) if report[1] in _INSTEAD else f"{said} Use another name."


def _expectation(text: str) -> str:
    tokens = [_END] if text == _END else _EXPECTED.findall(text)
    if "IDENTIFIER" in text:
        return f"{_VALUE}, or ')'" if ")" in tokens else _VALUE
    return _OPERATOR if _END in tokens else " or ".join(f"'{each}'" for each in tokens)


def _expected(wanted: str, found: str) -> str:
    there = "the end" if found == _END else f"'{found}'"
    return _with_remedy(f"Expected {wanted}; found {there}.", found)


def _with_remedy(said: str, word: str) -> str:
    return f"{said} {_INSTEAD[word]}" if word in _INSTEAD else said


_WORDS: Final = (
    (re.compile(r"(?:mismatched|extraneous) input '(.*)' expecting (.*)", re.DOTALL), _found),
    (re.compile(r"missing '(.*)' at '(.*)'", re.DOTALL), _missing),
    (re.compile(r"no viable alternative at input '(.)(.*)'", re.DOTALL), _unfit),
    (re.compile(r"token recognition error at: '(.*)'", re.DOTALL), _unknown),
    (re.compile(r"reserved identifier: (.*)"), _reserved),
)
