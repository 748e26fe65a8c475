"""`authplane lint`."""

from typing import Annotated

import typer

from authplane.app.generation import has_errors
from authplane.app.policy_lint import lint_policies
from authplane.app.records import finding_record
from authplane.cli.folder import FolderArgument
from authplane.cli.output import Output, OutputOption, finding_line, findings_summary, out, print_json
from authplane.cli.policy_files import read_enforced


def lint(
    folder: FolderArgument,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Look for mistakes in AccessPolicies, and for what is allowed and probably not meant.

    Exit status 1 if anything is an error; with --strict also if anything is found at all.

    Example: authplane lint ./gateway --strict
    """
    findings = lint_policies(read_enforced(folder))
    if output is Output.JSON:
        print_json([finding_record(finding) for finding in findings])
    else:
        for finding in findings:
            out.print(finding_line(finding))
        out.print(findings_summary(findings))
    if has_errors(findings) or (strict and findings):
        raise typer.Exit(1)
