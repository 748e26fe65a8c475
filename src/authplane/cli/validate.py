"""`authplane validate`."""

from collections.abc import Mapping

import click

from authplane.cli.shared.console import out
from authplane.cli.shared.folder_argument import FolderArgument, read_generation
from authplane.cli.shared.output import Output, OutputOption, count, findings_summary, print_finding, print_json
from authplane.controlplane.serving.generation import has_errors
from authplane.controlplane.status.status_json import finding_record


def validate(folder: FolderArgument, output: OutputOption = Output.TEXT) -> None:
    """Check a folder of resources and name every problem in one pass.

    Exit status 1 if anything is an error.

    Example: authplane validate ./gateway
    """
    generation = read_generation(folder)
    findings = generation.findings
    if output is Output.JSON:
        print_json([finding_record(finding) for finding in findings])
    else:
        for finding in findings:
            print_finding(finding)
        out.print(f"{findings_summary(findings)}{_ignored(generation.loaded.ignored)}", markup=False)
    if has_errors(findings):
        raise click.exceptions.Exit(1)


def _ignored(kinds: Mapping[str, int]) -> str:
    if not kinds:
        return ""
    listed = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    return f"; ignored {count(sum(kinds.values()), 'document')} of other kinds: {listed}"
