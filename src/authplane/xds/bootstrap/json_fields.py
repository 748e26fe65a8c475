"""Reads the fields of a JSON object: checks types and ignores unknown fields."""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Self, TypeVar

from authplane.core.problems import Problems

K = TypeVar("K")

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class Fields:
    """One JSON object. Reading a field that is missing or of another type adds a problem and gives a neutral value.

    A field that is null counts as missing.
    """

    def __init__(self, value: dict[str, Any], problems: Problems) -> None:
        self._value = value
        self.problems: Final = problems

    @classmethod
    def of(cls, value: object, problems: Problems) -> Self | None:
        """Take a value as an object; None, with a problem, if it is something else."""
        if isinstance(value, dict):
            return cls(value, problems)
        problems.add("WrongType", f"Expected an object, got {_kind(value)}.")
        return None

    def at(self, name: str) -> AbstractContextManager[None]:
        """Report problems inside the block under a field."""
        return self.problems.at(name)

    def has(self, name: str) -> bool:
        """Tell whether a field is there."""
        return self._value.get(name) is not None

    def text(self, name: str) -> str | None:
        """Return a text; None if it is not there."""
        return self._typed(name, str, "a string")

    def path(self, name: str) -> str | None:
        """Return a text that is not empty and has no NUL, as names of files and targets are; None if not there."""
        value = self.text(name)
        if value is None or (value and "\0" not in value):
            return value
        with self.problems.at(name):
            self.problems.add(
                "Invalid", "The value has a NUL character. Remove it." if value else "The value is empty. Set it."
            )
        return None

    def required_path(self, name: str) -> str:
        """Return a text that is not empty and has no NUL, which must be there."""
        self.require(name)
        return self.path(name) or ""

    def required_text(self, name: str) -> str:
        """Return a text that must be there."""
        self.require(name)
        return self.text(name) or ""

    def flag(self, name: str) -> bool:
        """Return true or false; false if it is not there."""
        return self._typed(name, bool, "true or false") or False

    def fields(self, name: str) -> "Fields | None":
        """Return an object; None if it is not there."""
        value = self.mapping(name)
        return None if value is None else Fields(value, self.problems)

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return an object as it is; None if it is not there."""
        value: dict[str, Any] | None = self._typed(name, dict, "an object")
        return value

    def require(self, name: str) -> bool:
        """Tell whether a field is there; it must be."""
        if self.has(name):
            return True
        with self.problems.at(name):
            self.problems.add("Missing", "This field is required. Add it.")
        return False

    def require_elements(self, name: str) -> None:
        """Check that a list is there and not empty."""
        if self.require(name) and self._value[name] == []:
            with self.problems.at(name):
                self.problems.add("Invalid", "The list is empty. Add an element.")

    def items(self, name: str) -> Iterator[object]:
        """Yield the elements of a list, each under its path; none if it is not there."""
        for index, each in enumerate(self._typed(name, list, "a list") or ()):
            with self.problems.at(name, index):
                yield each

    def objects(self, name: str) -> "Iterator[Fields]":
        """Yield the elements of a list of objects, each under its path."""
        for each in self.items(name):
            fields = Fields.of(each, self.problems)
            if fields is not None:
                yield fields

    def members(self, name: str) -> "Iterator[tuple[str, Fields]]":
        """Yield the members of an object of objects, each under its path."""
        for key, each in (self.mapping(name) or {}).items():
            with self.problems.at(name, _step(key)):
                fields = Fields.of(each, self.problems)
                if fields is not None:
                    yield key, fields

    def _typed(self, name: str, kind: type[K], words: str) -> K | None:
        value = self._value.get(name)
        if value is None or isinstance(value, kind):
            return value
        with self.problems.at(name):
            self.problems.add("WrongType", f"Expected {words}, got {_kind(value)}.")
        return None


def _step(key: str) -> str:
    """Write a key that is no plain word in quotes: ``authorities.["xds.example.com"]``."""
    return key if _PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key)}]"


def _kind(value: object) -> str:
    """Name the type of a value, not the value: it may be a secret in the wrong place."""
    match value:
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"
