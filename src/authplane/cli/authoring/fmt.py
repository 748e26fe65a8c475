"""`authplane fmt`."""

from pathlib import Path
from typing import Annotated

import click

from authplane.cli.shared.output import count, fail, print_finding, print_line
from authplane.cli.shared.parameters import Argument, Option
from authplane.devkit.formatting.format_files import FormattedFile, find_yaml, format_file, write_file
from authplane.sources.runtime.listing import FolderError, shown


def fmt(
    paths: Annotated[
        list[Path] | None, Argument(metavar="[PATH]...", help="Files and folders. Default: the current folder.")
    ] = None,
    check: Annotated[
        bool, Option("--check", help="Write no file. Print the differences, and exit with status 1 if there are any.")
    ] = False,
) -> None:
    """Format YAML files: indentation, order of the first keys, spaces at line ends.

    The command keeps comments and does not change the meaning of a document: before it writes a file, it parses the old
    and the new text and compares them. It does not change a file that it cannot read.

    Exit status: 1 if authplane cannot read a file, or if --check finds a file to format; 2 if a path does not exist.

    Example: authplane fmt ./gateway --check
    """
    try:
        files = [format_file(path) for path in find_yaml(paths or [Path()])]
    except FolderError as error:
        fail(str(error), status=2)
    for file in files:
        _print(file, check=check)
    changed = [file for file in files if file.changes]
    unread = [file for file in files if file.findings]
    verb = "would change" if check else "changed"
    said = f"{count(len(files), 'file')}, {len(changed)} {verb}"
    print_line(said + (f", {len(unread)} cannot be read" if unread else ""))
    if unread or (check and changed):
        raise click.exceptions.Exit(1)


def _print(file: FormattedFile, *, check: bool) -> None:
    for finding in file.findings:
        print_finding(finding)
    for line in file.kept:
        note = "authplane fmt did not change this document, because it cannot move the lines. Use plain block style"
        print_line(f"{shown(str(file.path))}:{line}: {click.style('note', fg='yellow')}: {note}.", to_stderr=True)
    if not file.changes:
        return
    if check:
        click.echo(file.diff, nl=False)
        return
    try:
        write_file(file)
    except OSError as error:
        fail(
            f"Cannot write {shown(str(file.path))}: {error.strerror}. Check the permissions of the file and its folder."
        )
    print_line(f"formatted {shown(str(file.path))}")
