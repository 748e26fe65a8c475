"""How commands print: text for people, JSON for programs, one error message on standard error.

This module does not import rich, which doubles the start-up time; `console` does, for tables and markup.
"""

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, NoReturn, TypeAlias

import click

from authplane.cli.shared.parameters import Option
from authplane.core.problems import Severity, dotted, printable
from authplane.resources.documents import Finding


class Output(StrEnum):
    """The output format of a command."""

    TEXT = "text"
    JSON = "json"


OutputOption: TypeAlias = Annotated[Output, Option("-o", "--output", help="Output format: text or json.")]

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def print_json(value: Any) -> None:
    """Print a value as JSON, without colours or wrapping."""
    click.echo(json.dumps(value, indent=2))


def print_line(text: str, *, to_stderr: bool = False) -> None:
    """Print a line unchanged; colours appear only on a terminal that supports them."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") in {"dumb", "unknown"}
    click.echo(text, err=to_stderr, color=False if plain else None)


def print_finding(finding: Finding, *, to_stderr: bool = False) -> None:
    """Print a problem on one line, the place first so that editors can jump there."""
    problem = finding.problem
    where = " ".join(filter(None, [str(finding.ref or ""), dotted(problem.path)]))
    severity = click.style(problem.severity.value, fg=_COLOURS[problem.severity])
    said = click.style(f"({where}{', ' if where else ''}{problem.reason})", dim=True)
    print_line(f"{printable(str(finding.place))}: {severity}: {problem.message} {said}", to_stderr=to_stderr)


def fail(sentence: str, *, status: int = 1) -> NoReturn:
    """Print an error on standard error and exit."""
    print_line(f"{click.style('authplane:', fg='red')} {sentence}", to_stderr=True)
    raise click.exceptions.Exit(status)


def count(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def findings_summary(findings: Sequence[Finding]) -> str:
    """Count the problems in words."""
    errors = sum(finding.problem.severity is Severity.ERROR for finding in findings)
    return f"{count(errors, 'error')}, {count(len(findings) - errors, 'warning')}"
