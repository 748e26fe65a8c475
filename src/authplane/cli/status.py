"""`authplane status`."""

import json
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from authplane.app.records import Transitions
from authplane.cli.folder import FolderArgument, read_generation
from authplane.cli.output import Output, OutputOption, out, print_json
from authplane.graph.programming import NoProxy
from authplane.io.clock import now
from authplane.io.live import NotLiveError, ask_live

_COLOURS = {"True": "green", "False": "red", "Unknown": "yellow"}


def status(folder: FolderArgument, output: OutputOption = Output.TEXT) -> None:
    """Show the status of every resource, as Kubernetes would store it.

    A control plane that runs for the folder is asked, so that what proxies refused is shown too.

    Example: authplane status ./gateway -o json
    """
    records = _records(folder)
    if output is Output.JSON:
        print_json(records)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("RESOURCE", "VALID", "READY", "PROGRAMMED", "WHY"):
        table.add_column(heading, overflow="fold")
    for record in records:
        table.add_row(*_row(record))
    out.print(table)


def _records(folder: Path) -> list[dict[str, Any]]:
    generation = read_generation(folder)
    try:
        records: list[dict[str, Any]] = json.loads(ask_live(folder, "/status"))
    except NotLiveError:
        return Transitions().records(generation.status(NoProxy()), now())
    return records


def _row(record: dict[str, Any]) -> list[str]:
    meta, conditions = record["metadata"], record["status"]["conditions"]
    by_type = {condition["type"]: condition for condition in conditions}
    cells = [f"{record['kind']}/{meta['namespace']}/{meta['name']}"]
    for kind in ("Valid", "Ready", "Programmed"):
        state = by_type[kind]["status"] if kind in by_type else ""
        cells.append(f"[{_COLOURS[state]}]{state}[/]" if state else "")
    return [*cells, "\n".join(_reasons(conditions))]


def _reasons(conditions: list[dict[str, Any]]) -> list[str]:
    lines = []
    for condition in conditions:
        subs = (*condition.get("errors", ()), *condition.get("warnings", ()))
        lines += [escape(f"{sub['reason']}: {sub['message']}") for sub in subs]
        if condition["status"] != "True" and not condition.get("errors"):
            lines.append(escape(f"{condition['reason']}: {condition['message']}"))
    return lines
