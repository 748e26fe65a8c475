"""The commands, as a user types them."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.support.certificates import server
from tests.support.envoy.validation import validate
from tests.support.policies.documents import BACKEND, policy, rule
from tests.support.resources.contour_documents import PROXY, whole

from authplane.cli.main import COMMANDS as ALL
from authplane.cli.main import build_app

COMMANDS = [
    "run", "init", "control", "authserver", "validate", "apply", "status", "doctor", "decisions", "explain", "compile",
    "bootstrap", "check", "match", "test", "lint", "fmt", "schema", "crds", "certificates", "dev",
]  # fmt: skip
GROUPS = {
    "authserver": ["testserver", "htpasswd", "policy", "serve"],
    "dev": ["issuer", "token", "spiffe", "tls", "tools"],
}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in whole().items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def test_validate_names_every_problem_for_programs(folder: Path) -> None:
    path = folder / "proxy.yaml"
    path.write_text(PROXY.replace("fqdn: web.example", "fqdn: web.example\n    fqdm: x"), encoding="utf-8")
    result = invoke("validate", str(folder), "-o", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {
            "file": str(path),
            "line": 8,
            "column": 5,
            "resource": "HTTPProxy/default/web",
            "path": "spec.virtualhost.fqdm",
            "reason": "FieldUnknown",
            "message": "Unknown field 'fqdm'. Did you mean 'fqdn'?",
            "severity": "error",
        }
    ]


def test_validate_finds_what_only_the_whole_shows(folder: Path) -> None:
    (folder / "extension.yaml").unlink()
    [found] = json.loads(invoke("validate", str(folder), "-o", "json").stdout)
    assert (found["line"], found["path"], found["reason"]) == (
        10,
        "spec.virtualhost.authorization.extensionRef",
        "ExtensionServiceNotFound",
    )


def test_a_good_folder_is_good(folder: Path) -> None:
    result = invoke("validate", str(folder))
    assert (result.exit_code, result.stdout) == (0, "0 errors, 0 warnings\n")
    result = invoke("validate", str(folder), "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_warnings_do_not_fail(folder: Path) -> None:
    proxy = PROXY.replace("extensionRef: {name: auth}", "extensionRef: {name: auth}\n      failOpen: true")
    (folder / "proxy.yaml").write_text(proxy, encoding="utf-8")
    result = invoke("validate", str(folder))
    assert result.exit_code == 0
    assert "warning" in result.stdout
    assert "0 errors, 1 warning" in result.stdout


def test_documents_of_other_kinds_are_counted(folder: Path) -> None:
    (folder / "other.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", encoding="utf-8")
    assert "ignored 1 document of other kinds: Deployment 1" in invoke("validate", str(folder)).stdout


def test_status_is_what_kubernetes_would_store(folder: Path) -> None:
    result = invoke("status", str(folder), "-o", "json")
    assert result.exit_code == 0
    records: list[dict[str, Any]] = json.loads(result.stdout)
    assert [(record["apiVersion"], record["kind"], record["metadata"]) for record in records] == [
        ("projectcontour.io/v1alpha1", "ExtensionService", {"name": "auth", "namespace": "default"}),
        ("projectcontour.io/v1", "HTTPProxy", {"name": "web", "namespace": "default"}),
    ]
    valid = records[1]["status"]["conditions"][0]
    assert (valid["type"], valid["status"], valid["observedGeneration"]) == ("Valid", "True", 1)


def test_status_for_people_says_why(folder: Path) -> None:
    (folder / "extension.yaml").unlink()
    result = invoke("status", str(folder))
    assert "HTTPProxy/default/web  False" in result.stdout
    assert "ExtensionServiceNotFound" in result.stdout


def test_status_for_people_says_who_decides(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{BACKEND}\n---\n{policy(rule())}", encoding="utf-8")
    lines = invoke("status", str(tmp_path)).stdout.splitlines()
    assert lines[0].split() == ["RESOURCE", "VALID", "READY", "PROGRAMMED", "ENFORCED"]
    assert lines[1].split() == ["AccessPolicy/default/p", "True", "True", "False", "Native"]
    assert "NoReadyEndpoints" not in "".join(lines)


def test_compile_keeps_keys_to_itself(folder: Path) -> None:
    key = server("web.example").key.reveal().decode()
    result = invoke("compile", str(folder), "-o", "json")
    compiled = json.loads(result.stdout)
    assert list(compiled) == ["listeners", "routes", "clusters", "endpoints", "secrets"]
    assert compiled["secrets"][0]["tlsCertificate"]["privateKey"] == {"inlineBytes": "[redacted]"}
    manager = compiled["listeners"][0]["filterChains"][0]["filters"][0]["typedConfig"]
    assert manager["@type"].endswith(".HttpConnectionManager")
    shown = json.loads(invoke("compile", str(folder), "-o", "json", "--show-secrets").stdout)
    import base64  # noqa: PLC0415

    assert base64.b64decode(shown["secrets"][0]["tlsCertificate"]["privateKey"]["inlineBytes"]).decode() == key


def test_compile_prints_the_same_text_each_time(folder: Path) -> None:
    first = invoke("compile", str(folder), "-o", "json").stdout
    assert first == invoke("compile", str(folder), "-o", "json").stdout


def test_compile_for_people_shows_what_is_checked(folder: Path) -> None:
    lines = invoke("compile", str(folder)).stdout.splitlines()
    assert lines == [
        "http://web.example on 0.0.0.0:8080",
        "  / → redirect to https  unprotected",
        "https://web.example on 0.0.0.0:8443, certificate default/tls",
        "  / → default/echo/80  checked by extension/default/auth within 200 ms, fails closed",
    ]


@pytest.mark.real
async def test_envoy_accepts_the_static_configuration(folder: Path) -> None:
    verdict = await validate(invoke("compile", str(folder), "--bootstrap").stdout)
    assert verdict.ok, verdict.output


@pytest.mark.real
@pytest.mark.parametrize("delta", [[], ["--delta"]])
async def test_envoy_accepts_the_start_up_configuration(delta: list[str]) -> None:
    verdict = await validate(invoke("bootstrap", "--address", "127.0.0.1:1", *delta).stdout)
    assert verdict.ok, verdict.output


def test_half_of_the_tls_files_is_a_mistake() -> None:
    result = invoke("bootstrap", "--tls-ca-path", "ca.crt")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "command",
    ["validate", "status", "doctor", "explain", "compile", "control", "run", "test", "lint", "authserver policy"],
)
def test_a_folder_that_is_not_there_is_one_sentence(command: str, tmp_path: Path) -> None:
    result = invoke(*command.split(), str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert result.stderr.startswith("authplane: ")
    assert "missing" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["control", ".", "--address", "nonsense"],
        ["authserver", "testserver", "--address", "127.0.0.1:99999"],
        ["authserver", "testserver", "--tls-cert-path", "missing.crt", "--tls-key-path", "missing.key"],
        ["control", ".", "--address", "0.0.0.0:0"],
    ],
)
def test_what_cannot_be_served_is_one_sentence(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code in {1, 2}
    assert result.stderr.startswith("authplane: ")
    assert "Traceback" not in result.stderr


def test_every_command_has_help_with_an_example() -> None:
    top = invoke("--help").stdout
    for command in COMMANDS:
        assert command in top
    below = [f"{group} {command}" for group, commands in GROUPS.items() for command in commands]
    for command in [*(each for each in COMMANDS if each not in GROUPS), *below]:
        text = " ".join(invoke(*command.split(), "--help").stdout.split())
        assert f"Example: authplane {command}" in text, command


def test_no_command_is_left_out_here() -> None:
    top = build_app()
    found = {name: command for name, command in loaded(top).items() if not command.hidden}
    assert set(found) == set(COMMANDS)
    groups = {name: list(group.commands) for name, group in found.items() if isinstance(group, click.Group)}
    assert groups == GROUPS


def loaded(top: click.Group) -> dict[str, click.Command]:
    context = click.Context(top)
    found = {name: top.get_command(context, name) for name in top.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    said = {name: (command.help or "").partition("\n")[0] for name, command in loaded(build_app()).items()}
    assert said == {name: entry.sentence for name, entry in ALL.items()}


def test_the_page_about_installing_lists_the_commands_of_each_part() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    plain = page.partition("Without an extra, you can use these commands:")[2].partition(". A command")[0]
    assert set(re.findall(r"`(\w+)`", plain)) == {name for name in COMMANDS if not ALL[name].extra}
    assert [name for name in COMMANDS if ALL[name].extra] == ["run", "control", "authserver"]


def test_an_unknown_command_is_a_usage_error() -> None:
    assert invoke("nonsense").exit_code == 2


@pytest.mark.parametrize("command", ["validate", "status"])
def test_a_service_without_endpoints_is_named_and_is_no_error(folder: Path, command: str) -> None:
    echo = folder / "echo.yaml"
    echo.write_text(echo.read_text(encoding="utf-8").split("---", maxsplit=1)[0], encoding="utf-8")
    result = invoke(command, str(folder))
    assert result.exit_code == 0
    assert 'Service "default/echo" has no ready endpoint for port 80' in result.stdout
    assert "NoReadyEndpoints" in result.stdout
