"""The command ``authplane``."""

import gc
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn

import click

from authplane.cli.shared.parameters import SETTINGS, Group, build_command
from authplane.runtime.extras import ExtraMissingError, extra_of, require_extra
from authplane.runtime.servers.grpc_lines import ENVIRONMENT

NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})


class Entry(NamedTuple):
    """A command before its module is imported."""

    place: str
    """Module and name, below this package."""
    sentence: str
    """The first line of its help; a test compares it with the docstring."""
    extra: str = ""
    """The extra that the command requires."""
    environment: Mapping[str, str] = NO_VARIABLES
    """The environment variables that its packages need when they are imported, unless the user has set them."""
    hidden: bool = False


COMMANDS: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "run": Entry(
            "run:run",
            "Run a gateway on this machine: control plane, policy server and Envoy.",
            extra="gateway",
        ),
        "init": Entry("init:init", "Write a folder to start with: a Backend, a policy, and tests of the policy."),
        "control": Entry(
            "control:control",
            "Compile a folder of resources and serve the configuration to Envoy and gRPC servers over xDS.",
            extra="gateway",
            environment=ENVIRONMENT,
        ),
        "authserver": Entry(
            "authserver:authserver", "Run an authorization service for Envoy (ext_authz).", extra="gateway"
        ),
        "validate": Entry("validate:validate", "Check a folder of resources and list every problem."),
        "apply": Entry(
            "apply:apply", "Validate a folder of resources and publish its files to another folder in one step."
        ),
        "status": Entry("status:status", "Show the status of every resource, as Kubernetes would store it."),
        "doctor": Entry(
            "doctor:doctor",
            "Check everything that a folder or a cluster relies on, and print a remedy for each finding.",
        ),
        "decisions": Entry(
            "decisions:decisions",
            "Show how often Envoy and the policy server granted or denied requests, for each policy and rule.",
        ),
        "explain": Entry(
            "explain:explain_placement",
            "Show which rules of AccessPolicies Envoy decides, which the policy server decides, and why.",
        ),
        "compile": Entry(
            "compile:compile_folder",
            "Compile a folder of resources and show the configuration for Envoy and gRPC servers.",
        ),
        "bootstrap": Entry(
            "bootstrap:bootstrap", "Print an Envoy bootstrap configuration that connects to a control plane."
        ),
        "check": Entry(
            "check:check_requests",
            "Evaluate requests against the AccessPolicies of a folder and show each decision with its reason.",
        ),
        "match": Entry("match:match_calls", "Show which branch of a matcher tree each gRPC call matches, and why."),
        "test": Entry(
            "test_policies:run_policy_tests",
            "Run the tests of AccessPolicies in all *.test.yaml files of a folder.",
        ),
        "lint": Entry("lint:lint", "Find errors and probably unintended grants in AccessPolicies."),
        "fmt": Entry(
            "authoring.fmt:fmt", "Format YAML files: indentation, order of the first keys, spaces at line ends."
        ),
        "schema": Entry(
            "authoring.print_schema:print_schema", "Print the JSON Schema of the resources, for editors and for CI."
        ),
        "crds": Entry(
            "authoring.print_crds:print_crds", "Print the CustomResourceDefinitions of the kinds, for a cluster."
        ),
        "certificates": Entry(
            "write_certificates:certificates",
            "Create a CA and certificates for the parts of an installation, as Secrets of a cluster, and renew them.",
        ),
        "dev": Entry("dev:dev", "Create an issuer, tokens and certificates for development, not for production."),
        "echo": Entry("echo:echo", "Answer every HTTP request with a description of that request.", hidden=True),
    }
)


class Program(Group):
    """Imports the module of a command when it is called; listing the commands imports none."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; if its packages are not installed, exit with an error."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        with _naming_extras(f"'authplane {cmd_name}'"):
            if entry.extra:
                require_extra(entry.extra, f"'authplane {cmd_name}'")
            module, _, attribute = entry.place.partition(":")
            with _without_collection():
                found = getattr(import_module(f"authplane.cli.{module}"), attribute)
        return found if isinstance(found, click.Group) else build_command(found, cmd_name, hidden=entry.hidden)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; if a late import fails, exit with an error that names the extra."""
        with _naming_extras("This command"):
            return super().invoke(ctx)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their sentences."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.sentence) for name, entry in COMMANDS.items() if not entry.hidden])


@contextmanager
def _without_collection() -> Generator[None]:
    """Disable garbage collection during imports and freeze the result: nearly all of these objects stay alive."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextmanager
def _naming_extras(what: str) -> Generator[None]:
    try:
        yield
    except ExtraMissingError as error:
        _stop(str(error))
    except ModuleNotFoundError as error:
        extra = extra_of(error)
        if extra is None:
            raise
        _stop(str(ExtraMissingError(what, extra)))


def _stop(sentence: str) -> NoReturn:
    from authplane.cli.shared.output import fail  # noqa: PLC0415 (a list of commands does not need it)

    fail(sentence)


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 (nothing else needs it, and it is slow)

        click.echo(version("authplane"))
        ctx.exit()


def build_app() -> Program:
    """Return the program with all its commands."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    )
    return Program(
        "authplane",
        help="Authorize requests to Envoy, gRPC servers and MCP servers.\n\nExample: authplane run",
        params=[version],
        no_args_is_help=True,
        context_settings=SETTINGS,
    )


def main() -> None:
    """Run the command that the user typed."""
    typed = COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    for name, value in (typed.environment if typed is not None else NO_VARIABLES).items():
        os.environ.setdefault(name, value)
    build_app()(prog_name="authplane")
    sys.exit(0)
