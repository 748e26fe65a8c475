"""Logs on standard error: words on a terminal, JSON elsewhere.

A line of text is ``10:20:30 fetched issuer keys: issuer https://idp.example, keys a b``. Only warnings and errors name
their level. Programs should read JSON, which has the same names and values.
"""

import contextlib
import logging
import sys
from collections.abc import Mapping, MutableMapping
from enum import StrEnum
from typing import Any, Final, TextIO, cast

import structlog

from authplane.core.problems import printable


class LogFormat(StrEnum):
    """The form of a line of the log."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class _StandardError:
    """The current standard error.

    A line that cannot be written is lost. A full disk must not fail a check.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def settled(form: LogFormat) -> LogFormat:
    """Return what ``auto`` means here: text on a terminal, JSON elsewhere."""
    if form is not LogFormat.AUTO:
        return form
    return LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON


def set_up_log(form: LogFormat = LogFormat.AUTO, *, level: int = logging.INFO) -> None:
    """Configure the log of this process."""
    text = settled(form) is LogFormat.TEXT
    render = _Words(colours=sys.stderr.isatty()) if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not text),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _StandardError())),
    )


def event_words(event: Mapping[str, Any]) -> str:
    """Write an event of a log with its details: ``fetched issuer keys: issuer https://idp.example, keys a b``.

    The reason and the remedy come last, as sentences of their own.
    """
    named = ((key, value) for key, value in event.items() if key not in _FRAME)
    details = ", ".join(f"{key.replace('_', ' ')} {_word(value)}" for key, value in named)
    reasons = _word(event[_WHY]) if event.get(_WHY) else ""
    said = ": ".join(filter(None, (printable(str(event.get("event", ""))), details, reasons)))
    return f"{said.rstrip('.')}. {_word(event[_FIX])}" if event.get(_FIX) else said


_WHY: Final = "why"
_FIX: Final = "fix"
_FRAME: Final = frozenset({"event", "level", "timestamp", "exception", _WHY, _FIX})
_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"


class _Words:
    """Writes an event as a line for people."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        level, time, trace = (str(event.get(name, "")) for name in ("level", "timestamp", "exception"))
        warning = f"{self._coloured(_COLOURS[level], level)}: " if level in _COLOURS else ""
        line = f"{self._coloured(_DIM, time[11:19])} {warning}{event_words(event)}"
        return f"{line}\n{trace}" if trace else line

    def _coloured(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._colours else text


def _word(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list() | tuple() | set() | frozenset():
            return " ".join(map(_word, value)) or "none"
        case _:
            return printable(str(value))
