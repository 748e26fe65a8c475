"""`authplane lint`."""

from typing import Annotated

import click

from authplane.cli.shared.cluster_options import Place, with_cluster
from authplane.cli.shared.output import Output, OutputOption, findings_summary, print_finding, print_json, print_line
from authplane.cli.shared.parameters import Option
from authplane.cli.shared.policy_files import read_enforced
from authplane.controlplane.status.findings import finding_record, has_errors
from authplane.devkit.policies.policy_lint import lint_policies


@with_cluster
def lint(
    folder: Place,
    strict: Annotated[bool, Option("--strict", help="Exit with status 1 on warnings too.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Find errors and probably unintended grants in AccessPolicies.

    Exit status: 1 if there is an error; with --strict also if there is a warning.

    Example: authplane lint ./gateway --strict
    """
    findings = lint_policies(read_enforced(folder))
    if output is Output.JSON:
        print_json([finding_record(finding) for finding in findings])
    else:
        for finding in findings:
            print_finding(finding)
        print_line(findings_summary(findings))
    if has_errors(findings) or (strict and findings):
        raise click.exceptions.Exit(1)
