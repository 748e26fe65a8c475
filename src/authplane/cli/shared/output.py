"""How commands print: text for people, JSON for programs, one sentence for what went wrong."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, NoReturn, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from authplane.core.problems import Severity, dotted, printable
from authplane.resources.documents import Finding


class Output(StrEnum):
    """The form of what a command prints."""

    TEXT = "text"
    JSON = "json"


OutputOption: TypeAlias = Annotated[
    Output, typer.Option("-o", "--output", help="text is for people, json for programs.", show_default=True)
]

# What files say is printed as it is: no emoji for ``:100:``, no line breaks of ours within ``file:line:column``.
out = Console(highlight=False, soft_wrap=True, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def print_json(value: Any) -> None:
    """Print a value as JSON, as it is: no colours, no wrapping."""
    typer.echo(json.dumps(value, indent=2))


def fail(sentence: str, *, status: int = 1) -> NoReturn:
    """Say what is wrong on standard error and stop."""
    err.print(Text.assemble(("authplane:", "red"), f" {sentence}"))
    raise typer.Exit(status)


def finding_line(finding: Finding) -> Text:
    """Write a problem on one line, the place first so that editors can jump there."""
    problem = finding.problem
    where = " ".join(filter(None, [str(finding.ref or ""), dotted(problem.path)]))
    return Text.assemble(
        f"{printable(str(finding.place))}: ",
        (problem.severity.value, _COLOURS[problem.severity]),
        f": {problem.message} ",
        (f"({where}{', ' if where else ''}{problem.reason})", "dim"),
    )


def count(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def findings_summary(findings: Sequence[Finding]) -> str:
    """Count the problems in words."""
    errors = sum(finding.problem.severity is Severity.ERROR for finding in findings)
    return f"{count(errors, 'error')}, {count(len(findings) - errors, 'warning')}"
