"""`authplane doctor`."""

from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.markup import escape

from authplane.cli.shared.built_folder import read_generation
from authplane.cli.shared.console import out
from authplane.cli.shared.folder_argument import FolderArgument
from authplane.cli.shared.output import Output, OutputOption, print_json
from authplane.controlplane.serving.runtime.policy_server_probe import ask_given
from authplane.devkit.diagnosis.probes import Examined, Outcome, Row, examine, row_record

_HEAD: Final = ("PROBE", "SUBJECT", "OUTCOME", "MESSAGE")
_COLOURS: Final = {Outcome.OK: "green", Outcome.FINDING: "red", Outcome.UNKNOWN: "yellow"}


def doctor(folder: FolderArgument, output: OutputOption = Output.TEXT) -> None:
    """Try what the folder relies on, from this machine, and say what to do about each finding.

    It connects to the policy server as Envoy does, with the same certificates: the one that decides inside
    `authplane run` if that serves the folder, otherwise the one of spec.policyServer. Exit status 1 if
    there is a finding.

    Example: authplane doctor ./gateway
    """
    rows = examine(Examined(generation=read_generation(folder), given=ask_given(folder)))
    if output is Output.JSON:
        print_json([row_record(row) for row in rows])
    else:
        for line in _lines(rows):
            out.print(line)
    if any(row.outcome is Outcome.FINDING for row in rows):
        raise click.exceptions.Exit(1)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    cells = [_HEAD, *((row.probe, row.subject, row.outcome.value, row.message) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    yield "[bold]" + "  ".join(f"{cell:<{width}}" for cell, width in zip(_HEAD, (*widths, 0), strict=True)) + "[/]"
    for row in rows:
        first, second, third = widths
        yield (
            f"{escape(row.probe):<{first}}  {escape(row.subject):<{second}}  "
            f"[{_COLOURS[row.outcome]}]{row.outcome.value:<{third}}[/]  {escape(row.message)}"
        )
        if row.remedy:
            yield f"    Fix: {escape(row.remedy)}"
