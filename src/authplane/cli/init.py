"""`authplane init`."""

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import click

from authplane.cli.shared.output import count, fail, print_finding
from authplane.cli.shared.parameters import Argument, Option
from authplane.core.problems import Severity, printable
from authplane.devkit.local.dev_folder import DevFolderError, prepare_issuer
from authplane.devkit.local.dev_issuer import DEV_ADDRESS, DEV_FOLDER
from authplane.devkit.scaffold.answers import (
    DEV,
    Answers,
    Grant,
    audience_problem,
    claim_problem,
    grants_problem,
    issuer_problem,
    name_problem,
    parse_grant,
    url_problem,
)
from authplane.devkit.scaffold.check_files import check_files
from authplane.devkit.scaffold.contour_documents import MoveError, read_documents
from authplane.devkit.scaffold.contour_folder import move_folder
from authplane.devkit.scaffold.mcp_folder import render_mcp_folder
from authplane.devkit.scaffold.next_steps import contour_steps, next_steps
from authplane.devkit.scaffold.write_folder import WriteError, write_files
from authplane.sources.runtime.listing import FolderError

_PRIVATE: Final = frozenset({"dev-issuer.yaml"})
_DEV_HELP: Final = (
    f"  Enter {DEV} to use the development issuer of authplane, which signs tokens for tests on this machine only."
)


def init(
    folder: Annotated[Path, Argument(metavar="[DIR]", help="Folder to write. Default: gateway.")] = Path("gateway"),
    url: Annotated[
        str, Option("--url", metavar="URL", help="URL of the MCP server, such as http://127.0.0.1:7000/mcp.")
    ] = "",
    issuer: Annotated[
        str, Option("--issuer", metavar="URL", help="URL of the token issuer, or dev for the development issuer.")
    ] = "",
    audience: Annotated[
        str,
        Option(
            "--audience",
            metavar="NAME",
            help="Audience that tokens must have. With --issuer dev, the default is the value of --name.",
        ),
    ] = "",
    group: Annotated[
        list[str] | None,
        Option(
            "--group",
            metavar="GROUP=TOOLS",
            help="Group and the tools that it may call, such as readers=add,list or admins=*. Repeatable.",
        ),
    ] = None,
    claim: Annotated[str, Option("--claim", metavar="NAME", help="Claim that lists the caller's groups.")] = "groups",
    name: Annotated[
        str, Option("--name", metavar="NAME", help="Name of the Backend. The URL for clients contains it.")
    ] = "tools",
    port: Annotated[int, Option(min=1, max=65535, help="Port on which Envoy listens.")] = 8090,
    from_contour: Annotated[
        Path | None,
        Option(
            "--from-contour",
            metavar="FOLDER",
            help="Folder with Contour's resources to move. With it, authplane asks no questions.",
        ),
    ] = None,
    force: Annotated[bool, Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a folder to start with: a Backend, a policy, and tests of the policy.

    On a terminal, authplane asks for missing options. With --from-contour, it moves HTTPProxies,
    ExtensionServices and contour-authserver, and prints what it changed and what it could not move.

    Example: authplane init notes --url http://127.0.0.1:7000/mcp --issuer dev --group readers=list_notes

    Example: authplane init gateway --from-contour ./manifests
    """
    if from_contour is not None:
        if url or issuer or audience or group:
            fail(
                "You cannot combine --from-contour with --url, --issuer, --audience or --group. Remove these options.",
                status=2,
            )
        _move(from_contour, folder, force=force)
        return
    answers = _ask(url, issuer, audience, group or [], claim, name, port)
    ca = _dev_ca() if answers.issuer == DEV else b""
    schema = files("authplane.resources").joinpath("schemas/authplane.schema.json").read_text(encoding="utf-8")
    made = render_mcp_folder(answers, schema, ca)
    _require_valid(made)
    _write(folder, made, private=_PRIVATE, force=force)
    click.echo(f"\n{next_steps(folder, answers)}")


def _move(source: Path, folder: Path, *, force: bool) -> None:
    """Write what Contour's resources become, and say what is different."""
    if folder.resolve() == source.resolve() or source.resolve() in folder.resolve().parents:
        fail(f"{folder} is inside {source}, which authplane does not change. Use another folder.", status=2)
    try:
        moved = move_folder(read_documents(source))
    except FolderError as error:
        fail(str(error), status=2)
    except MoveError as error:
        for finding in error.findings:
            print_finding(finding, to_stderr=True)
        fail(str(error))
    _write(folder, moved.files, private=moved.private, force=force)
    for title, lines in (("Changed", moved.changed), ("Not moved", moved.left), ("Missing", moved.missing)):
        if lines:
            click.echo(f"\n{title}:")
            for line in lines:
                click.echo(f"  - {printable(line)}")
    if moved.warnings:
        click.echo(f"\nauthplane validate {quote(str(folder))} reports {count(moved.warnings, 'warning')}.")
    click.echo(f"\n{contour_steps(folder, moved)}")


# --- Questions


def _ask(url: str, issuer: str, audience: str, group: list[str], claim: str, name: str, port: int) -> Answers:
    """Check the options; ask for what is missing on a terminal, and fail for it elsewhere."""
    for option, text, problem in (
        ("--url", url, url_problem),
        ("--issuer", issuer, issuer_problem),
        ("--audience", audience, audience_problem),
        ("--claim", claim, claim_problem),
        ("--name", name, name_problem),
    ):
        if text and (wrong := problem(text)):
            fail(f"{option}: {wrong}", status=2)
    grants = tuple(_grant(text) for text in group)
    if issuer == DEV and not audience:
        audience = name
    given = {"--url": url, "--issuer": issuer, "--audience": audience, "--group": grants}
    # With the development issuer, the audience has a default.
    missing = [option for option, value in given.items() if not value and (option != "--audience" or issuer)]
    if missing and not sys.stdin.isatty():
        asks = "Pass the missing options, or run the command on a terminal, where authplane asks for them."
        many = len(missing) > 1
        listed = f"{', '.join(missing[:-1])} and {missing[-1]}" if many else missing[0]
        fail(f"{listed} {'are' if many else 'is'} missing. {asks}", status=2)
    url = url or _question("URL of the MCP server", url_problem, example="http://127.0.0.1:7000/mcp")
    if not issuer:
        click.echo(_DEV_HELP)
        issuer = _question("Issuer of tokens", issuer_problem, default=DEV)
    audience = audience or _question("Audience of the tokens", audience_problem, default=name)
    grants = grants or _ask_grants()
    wrong = grants_problem(grants)
    if wrong:
        fail(wrong, status=2)
    return Answers(name=name, url=url, issuer=issuer, audience=audience, claim=claim, grants=grants, port=port)


def _question(text: str, problem: Callable[[str], str], *, default: str = "", example: str = "") -> str:
    """Ask until the answer can be used."""
    shown = f"{text} (such as {example})" if example else text
    while True:
        answer: str = click.prompt(shown, default=default or None, type=str).strip()
        wrong = problem(answer)
        if not wrong:
            return answer
        click.echo(f"  {wrong}")


def _ask_grants() -> tuple[Grant, ...]:
    """Ask for groups until the user has named them all."""
    click.echo("  Enter a group and its tools, such as readers=add,list_notes or admins=* for every tool.")
    found: list[Grant] = []
    while True:
        more = "Another group (Enter to finish)" if found else "First group"
        answer: str = click.prompt(more, default="" if found else None, show_default=False, type=str).strip()
        if not answer:
            return tuple(found)
        parsed = parse_grant(answer)
        wrong = parsed if isinstance(parsed, str) else grants_problem((*found, parsed))
        if isinstance(parsed, str) or wrong:
            click.echo(f"  {wrong}")
        else:
            found.append(parsed)


def _grant(text: str) -> Grant:
    parsed = parse_grant(text)
    if isinstance(parsed, str):
        fail(f"--group: {parsed}", status=2)
    return parsed


# --- Files


def _dev_ca() -> bytes:
    """Make the development issuer's keys if they are missing, and return its CA."""
    try:
        return prepare_issuer(DEV_FOLDER, DEV_ADDRESS.host, datetime.now(UTC)).ca.read_bytes()
    except DevFolderError as error:
        fail(str(error))


def _require_valid(made: Mapping[str, str]) -> None:
    """Refuse to write a folder that authplane would not serve."""
    errors = [each for each in check_files(made).findings if each.problem.severity is Severity.ERROR]
    if errors:
        for finding in errors:
            print_finding(finding, to_stderr=True)
        fail(
            "authplane cannot serve a folder with these answers, so it wrote no files. Correct the"
            " answers and run init again."
        )


def _write(folder: Path, made: Mapping[str, str], *, private: frozenset[str], force: bool) -> None:
    try:
        write_files(folder, made, private=private, force=force)
    except WriteError as error:
        fail(str(error))
    click.echo(f"Wrote {folder}:")
    for each in sorted(made):
        click.echo(f"  {each}")
