"""`authplane apply`."""

from pathlib import Path
from typing import Annotated

from authplane.cli.shared.checked_folder import check_folder
from authplane.cli.shared.output import count, fail, findings_summary, print_finding, print_line
from authplane.cli.shared.parameters import Argument
from authplane.controlplane.status.findings import has_errors
from authplane.sources.runtime.apply_folder import ApplyError, apply_folder


def apply(
    staged: Annotated[Path, Argument(metavar="STAGED", help="Folder with the new files.")],
    folder: Annotated[
        Path, Argument(metavar="DIR", help="Folder that the programs read. authplane replaces its files.")
    ],
) -> None:
    """Validate a folder of resources and publish its files to another folder in one step.

    authplane removes files that are in DIR but not in STAGED. If STAGED has errors, authplane does not change DIR and
    exits with status 1.

    Example: authplane apply ./next ./gateway
    """
    findings = check_folder(staged).findings
    for finding in findings:
        print_finding(finding, to_stderr=True)
    if has_errors(findings):
        fail(
            f"{staged} has {findings_summary(findings)}. authplane did not change {folder}. Fix the errors"
            " above and apply again."
        )
    try:
        applied = apply_folder(staged, folder)
    except ApplyError as error:
        fail(str(error))
    said = f"{applied.added} added, {applied.changed} changed, {applied.removed} removed"
    print_line(f"Applied {count(applied.files, 'file')} to {folder}: {said}.")
