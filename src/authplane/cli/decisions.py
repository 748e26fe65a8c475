"""`authplane decisions`."""

from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import click
from rich.markup import escape

from authplane.cli.shared.console import err, out
from authplane.cli.shared.listen_options import serving
from authplane.cli.shared.output import Output, OutputOption, fail, print_json
from authplane.cli.shared.parameters import Argument, Option
from authplane.controlplane.serving.runtime.control_socket import NotLiveError
from authplane.devkit.diagnosis.decision_counts import Counted, count_decisions, find_counts
from authplane.devkit.diagnosis.tallies import By, Effect, Tally
from authplane.runtime.servers.admin import ADMIN_ADDRESS
from authplane.runtime.servers.listen import Address, TcpAddress, parse_address

_ENVOY: Final = TcpAddress(host="127.0.0.1", port=9901)
_HEADINGS: Final = ("POLICY", "RULE", "ENTRY", "DECIDED BY", "ALLOWED", "DENIED", "UNDECIDED")
_NUMBERS: Final = 3
_EFFECTS: Final = {
    Effect.DECIDED: "",
    Effect.ONE_OF_SEVERAL: ", with other policies",
    Effect.SHADOW: ", in shadow",
}

FolderArgument: TypeAlias = Annotated[
    Path | None,
    Argument(metavar="[DIR]", help="Folder that 'authplane run' serves. The command reads the counts of this gateway."),
]
EnvoyOption: TypeAlias = Annotated[
    list[str] | None,
    Option(
        help=f"Address of an Envoy admin interface; repeatable. Use '' to read no Envoy. Default: {_ENVOY}.",
        show_default=False,
    ),
]
ServerOption: TypeAlias = Annotated[
    list[str] | None,
    Option(
        help=(
            "Metrics address of a policy server; repeatable. Use '' to read no policy server. Default:"
            f" {ADMIN_ADDRESS}."
        ),
        show_default=False,
    ),
]


def decisions(
    folder: FolderArgument = None,
    envoy: EnvoyOption = None,
    server: ServerOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show how often Envoy and the policy server granted or denied requests, for each policy and rule.

    Counts start at zero when Envoy or the policy server starts. Envoy also resets the counts of its own rules when it
    replaces a listener. If an Envoy or a policy server does not answer, authplane shows the other counts and exits
    with status 1.

    Example: authplane decisions --envoy 127.0.0.1:9901 --server 127.0.0.1:9091

    Example: authplane decisions ./gateway -o json
    """
    with serving():
        counted = count_decisions(_addresses(envoy, folder, _ENVOY), _addresses(server, folder, ADMIN_ADDRESS))
    if output is Output.JSON:
        print_json(_record(counted))
    else:
        _print(counted)
    if counted.silent:
        raise click.exceptions.Exit(1)


def _addresses(texts: list[str] | None, folder: Path | None, usual: Address) -> list[Address]:
    if texts is not None:
        return [parse_address(text.removeprefix("http://").rstrip("/")) for text in texts if text]
    if folder is None:
        return [usual]
    try:
        return [find_counts(folder)]
    except NotLiveError as error:
        fail(str(error))


def _print(counted: Counted) -> None:
    rows = [_HEADINGS, *map(_row, counted.tallies)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    texts = len(_HEADINGS) - _NUMBERS
    for number, row in enumerate(rows if counted.tallies else ()):
        cells = [
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = escape("  ".join(cells))
        out.print(line if number else f"[bold]{line}[/]")
    if not counted.tallies and not counted.silent:
        out.print("No decisions yet.")
    if any(each.by is By.ENVOY and not each.policy for each in counted.tallies):
        out.print(
            "[dim]A dash (-) means that no rule granted the request. Envoy's access log names the"
            " policies of the target.[/]"
        )
    for each in counted.silent:
        who = "Envoy" if each.by is By.ENVOY else "The policy server"
        option = "--envoy" if each.by is By.ENVOY else "--server"
        err.print(
            f"[red]authplane:[/] {who} at {escape(each.address)} {escape(each.why)}. The counts do not"
            f" include its decisions. Set {option} to an address that answers, or to '' to leave it out."
        )


def _row(tally: Tally) -> tuple[str, ...]:
    names = (tally.policy or "-", tally.rule or "-", tally.entry or "-", f"{tally.by.value}{_EFFECTS[tally.effect]}")
    return (*names, *map(str, (tally.allowed, tally.denied, tally.undecided)))


def _record(counted: Counted) -> dict[str, Any]:
    return {
        "decisions": [
            {
                "policy": each.policy,
                "rule": each.rule,
                "entry": each.entry,
                "decidedBy": each.by.value,
                "effect": each.effect.value,
                "allowed": each.allowed,
                "denied": each.denied,
                "undecided": each.undecided,
            }
            for each in counted.tallies
        ],
        "silent": [{"who": each.by.value, "address": each.address, "why": each.why} for each in counted.silent],
    }
