"""The command ``authplane``."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from authplane.cli.authserver import authserver
from authplane.cli.bootstrap import bootstrap
from authplane.cli.check import check_requests
from authplane.cli.compile import compile_folder
from authplane.cli.control import control
from authplane.cli.dev import dev
from authplane.cli.echo import echo
from authplane.cli.lint import lint
from authplane.cli.output import out
from authplane.cli.run import run
from authplane.cli.status import status
from authplane.cli.test_policies import run_policy_tests
from authplane.cli.validate import validate

app = typer.Typer(
    name="authplane",
    help="One authorization plane for Envoy, gRPC and MCP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(version("authplane"))
        raise typer.Exit


@app.callback()
def _authplane(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


app.command("run")(run)
app.command("control")(control)
app.add_typer(authserver)
app.command("validate")(validate)
app.command("status")(status)
app.command("compile")(compile_folder)
app.command("bootstrap")(bootstrap)
app.command("check")(check_requests)
app.command("test")(run_policy_tests)
app.command("lint")(lint)
app.add_typer(dev)
app.command("echo", hidden=True)(echo)


def main() -> None:
    """Run the command that the user typed."""
    app()
    sys.exit(0)
