"""`authplane apply`."""

from pathlib import Path
from typing import Annotated

from authplane.cli.shared.checked_folder import check_folder
from authplane.cli.shared.output import count, fail, findings_summary, print_finding, print_line
from authplane.cli.shared.parameters import Argument
from authplane.controlplane.status.findings import has_errors
from authplane.sources.runtime.apply_folder import ApplyError, apply_folder


def apply(
    staged: Annotated[Path, Argument(metavar="STAGED", help="The folder with the new files.")],
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder that programs read.")],
) -> None:
    """Check a folder of resources and give its content to another, all files at once.

    Exit status 1 if anything in STAGED is an error; then DIR stays as it is. Files of DIR that are not in STAGED are
    removed.

    Example: authplane apply ./next ./gateway
    """
    findings = check_folder(staged).findings
    for finding in findings:
        print_finding(finding, to_stderr=True)
    if has_errors(findings):
        fail(f"nothing was applied: {findings_summary(findings)} in {staged}")
    try:
        applied = apply_folder(staged, folder)
    except ApplyError as error:
        fail(str(error))
    said = f"{applied.added} added, {applied.changed} changed, {applied.removed} removed"
    print_line(f"applied {count(applied.files, 'file')} to {folder}: {said}")
