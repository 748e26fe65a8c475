"""The command ``authplane``."""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Final

import typer

from authplane.cli.shared.output import out

COMMANDS: Final = {
    "run": "run:run",
    "control": "control:control",
    "authserver": "authserver:authserver",
    "validate": "validate:validate",
    "apply": "apply:apply",
    "status": "status:status",
    "doctor": "doctor:doctor",
    "decisions": "decisions:decisions",
    "explain": "explain:explain_placement",
    "compile": "compile:compile_folder",
    "bootstrap": "bootstrap:bootstrap",
    "check": "check:check_requests",
    "match": "match:match_calls",
    "test": "test_policies:run_policy_tests",
    "lint": "lint:lint",
    "schema": "schema:print_schema",
    "dev": "dev:dev",
    "echo": "echo:echo",
}
"""Each command by module and name. Only the one that was typed is imported: all together take a second."""
_HIDDEN: Final = frozenset({"echo"})


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(version("authplane"))
        raise typer.Exit


def build_app(names: Iterable[str] = tuple(COMMANDS)) -> typer.Typer:
    """Return the program with these commands."""
    app = typer.Typer(
        name="authplane",
        help="One authorization plane for Envoy, gRPC and MCP.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_authplane)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f"authplane.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found)
        else:
            app.command(name, hidden=name in _HIDDEN)(found)
    return app


def _authplane(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def wanted(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that a command line may be about: one, or all if it names none that there is."""
    first = next((each for each in arguments if not each.startswith("-")), "")
    if first in COMMANDS:
        return (first,)
    return ("echo",) if list(arguments) == ["--version"] else tuple(COMMANDS)


def main() -> None:
    """Run the command that the user typed."""
    build_app(wanted(sys.argv[1:]))()
    sys.exit(0)
