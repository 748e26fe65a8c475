"""`authplane validate`."""

from collections.abc import Mapping

import click

from authplane.cli.shared.checked_folder import check_folder
from authplane.cli.shared.cluster_options import Place, with_cluster
from authplane.cli.shared.output import (
    Output,
    OutputOption,
    count,
    findings_summary,
    print_finding,
    print_json,
    print_line,
)
from authplane.controlplane.status.findings import finding_record, has_errors


@with_cluster
def validate(folder: Place, output: OutputOption = Output.TEXT) -> None:
    """Check a folder of resources and list every problem.

    Exit status: 1 if there is an error; warnings do not count.

    Example: authplane validate ./gateway

    Example: authplane validate --kubernetes
    """
    loaded, findings = check_folder(folder)
    if output is Output.JSON:
        print_json([finding_record(finding) for finding in findings])
    else:
        for finding in findings:
            print_finding(finding)
        print_line(f"{findings_summary(findings)}{_ignored(loaded.ignored)}")
    if has_errors(findings):
        raise click.exceptions.Exit(1)


def _ignored(kinds: Mapping[str, int]) -> str:
    if not kinds:
        return ""
    listed = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    return f"; ignored {count(sum(kinds.values()), 'document')} of other kinds: {listed}"
