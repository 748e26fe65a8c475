"""Logs: readable on a terminal, JSON elsewhere, always on standard error."""

import contextlib
import logging
import sys
from enum import StrEnum
from typing import TextIO, cast

import structlog


class LogFormat(StrEnum):
    """How a line of the log is written."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class _StandardError:
    """Standard error, whatever it is at the moment.

    A line that cannot be written is lost and nothing else: a full disk must not fail a check.
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
    render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if text else structlog.processors.JSONRenderer()
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
