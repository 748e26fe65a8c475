"""Logs: readable on a terminal, JSON elsewhere, always on standard error."""

import logging
import sys
from enum import StrEnum

import structlog


class LogFormat(StrEnum):
    """How a line of the log is written."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def set_up_log(form: LogFormat = LogFormat.AUTO, *, level: int = logging.INFO) -> None:
    """Configure the log of this process; ``auto`` is text on a terminal and JSON elsewhere."""
    text = form is LogFormat.TEXT or (form is LogFormat.AUTO and sys.stderr.isatty())
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
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
