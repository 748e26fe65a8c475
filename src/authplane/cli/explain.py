"""`authplane explain`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from rich.markup import escape

from authplane.cli.shared.built_folder import read_generation
from authplane.cli.shared.cluster_options import Place, with_cluster
from authplane.cli.shared.console import err, out
from authplane.cli.shared.output import Output, OutputOption, fail, findings_summary, print_json
from authplane.cli.shared.parameters import Option
from authplane.core.envoy_releases import CURRENT, Release
from authplane.devkit.policies.explain_placement import Explained, ExplainedPolicy, explain, explanation_record
from authplane.policy.placement.placement_model import Decider

_COLOURS: Final = {
    Decider.NOBODY: "red",
    Decider.ENVOY: "green",
    Decider.BOTH: "yellow",
    Decider.SERVER: "yellow",
    Decider.GRPC: "green",
    Decider.GRPC_AND_SERVER: "yellow",
}
_HEAD: Final = ("POLICY", "RULE", "ENTRY", "PLACE", "WHY")
_PLACES: Final = {"native": "green", "call-out": "yellow"}


@with_cluster
def explain_placement(
    folder: Place,
    envoy: Annotated[
        str, Option("--envoy", metavar="RELEASE", help="Release of the Envoy in front of the targets, such as 1.38.")
    ] = str(CURRENT),
    output: OutputOption = Output.TEXT,
) -> None:
    """Show which rules of AccessPolicies Envoy decides, which the policy server decides, and why.

    The command assumes that the keys of all issuers are available. An invalid policy denies all requests to its target.

    Example: authplane explain ./gateway

    Example: authplane explain ./gateway --envoy 1.38 -o json
    """
    release = Release.parse(envoy)
    if release is None:
        fail(f"{envoy!r} is not an Envoy release. Use MAJOR.MINOR, such as {CURRENT}.", status=2)
    generation = read_generation(folder)
    found = explain(generation, release)
    if output is Output.JSON:
        print_json(explanation_record(found, release))
    else:
        for line in _lines(found):
            out.print(line)
    if generation.findings:
        err.print(
            f"[yellow]The folder has {findings_summary(generation.findings)}.[/] Run 'authplane validate' to list them."
        )


def _lines(found: Sequence[Explained]) -> Iterator[str]:
    if not found:
        yield (
            "The folder has no Backend or Gateway that a policy can protect. Add one, or run authplane"
            " validate to list errors."
        )
    for each in found:
        where = " -> ".join(filter(None, (each.gateway, each.backend)))
        yield f"[bold]{escape(where)}[/]  [{_COLOURS[each.decider]}]{each.decider}[/]"
        if each.note:
            yield f"    {escape(each.note)}"
        if each.policies:
            yield f"    [dim]placement: {each.placement}[/]"
            yield from _table(each.policies)
        for advice in each.advice:
            yield f"    to make more rules native: {escape(advice)}"


def _table(policies: Iterable[ExplainedPolicy]) -> Iterator[str]:
    rows = [_HEAD, *(row for policy in policies for row in _rows(policy))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for number, row in enumerate(rows):
        shown = [_coloured(cell) + " " * (width - len(cell)) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(shown).rstrip()
        yield f"    [bold]{line}[/]" if not number else f"    {line}"


def _coloured(cell: str) -> str:
    return f"[{_PLACES[cell]}]{cell}[/]" if cell in _PLACES else escape(cell)


def _rows(policy: ExplainedPolicy) -> Iterator[tuple[str, ...]]:
    if policy.note:
        yield (str(policy.ref), "", "", "", policy.note)
    for entry in policy.entries:
        yield (str(policy.ref), entry.rule, entry.entry, "call-out" if entry.reason else "native", entry.reason)
