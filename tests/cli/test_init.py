"""`authplane init`: the folder that it writes, and what it refuses."""

import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.eventually import START_LIMIT

from authplane.cli.main import build_app

NOTES = ("--url", "http://127.0.0.1:7000/mcp", "--group", "readers=add,list_notes", "--group", "admins=*")
KEYCLOAK = ("--issuer", "https://id.example.com/realms/a", "--audience", "notes")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), arguments)


CHOICES = {
    "an issuer": KEYCLOAK,
    "the development issuer": ("--issuer", "dev"),
    "names that need quotes": (
        "--issuer", "https://a.example", "--audience", 'a "b"', "--claim", "https://a.example/groups",
        "--group", "Größe \"XL\"=to'ol,a: b", "--group", "größe xl=x", "--name", "notes-1",
    ),
}  # fmt: skip


@pytest.mark.requirement("IN-1")
@pytest.mark.parametrize("options", CHOICES.values(), ids=CHOICES.keys())
def test_validate_lint_and_test_accept_the_folder(options: tuple[str, ...]) -> None:
    made = invoke("init", "notes", *NOTES, *options)
    assert (made.exit_code, made.stderr) == (0, "")
    validated = invoke("validate", "notes")
    assert (validated.exit_code, validated.stdout) == (0, "0 errors, 0 warnings\n")
    assert invoke("lint", "notes").exit_code == 0
    assert invoke("fmt", "--check", "notes").exit_code == 0
    tested = invoke("test", "notes")
    assert tested.exit_code == 0, tested.output
    assert "0 failed" in tested.output
    for name in ("backend.yaml", "policy.yaml", "settings.yaml"):
        first = Path("notes", name).read_text(encoding="utf-8").partition("\n")[0]
        assert first == "# yaml-language-server: $schema=authplane.schema.json"
    assert Path("notes/authplane.schema.json").read_text(encoding="utf-8") == invoke("schema").stdout


def test_a_group_is_tested_with_a_tool_of_another_group() -> None:
    groups = ("--group", "readers=add,list_notes", "--group", "admins=add,delete_note")
    assert invoke("init", "notes", "--url", "http://127.0.0.1:7000/mcp", *KEYCLOAK, *groups).exit_code == 0
    cases = Path("notes/policy.test.yaml").read_text(encoding="utf-8")
    assert "readers may not call delete_note" in cases
    assert "admins may not call list_notes" in cases


def test_the_next_three_commands_are_printed() -> None:
    printed = invoke("init", "my notes", *NOTES, *KEYCLOAK, "--port", "8099", "--name", "notes").stdout
    commands = [line.strip() for line in printed.partition("Next:\n")[2].partition("\n\n")[0].splitlines()]
    assert commands[:2] == ["authplane test 'my notes'", "authplane run 'my notes'"]
    assert commands[2].startswith("curl -i http://127.0.0.1:8099/default/notes ")
    assert '"name":"add"' in commands[2]
    assert len(commands) == 3


def test_the_development_issuer_is_ready_and_trusted() -> None:
    printed = invoke("init", "notes", *NOTES, "--issuer", "dev").stdout
    assert "$(authplane dev token --sub alice --aud tools --claim 'groups:=[\"readers\"]')" in printed
    ca = Path(".authplane/dev/ca.crt").read_text(encoding="ascii")
    written = Path("notes/dev-issuer.yaml")
    assert "".join(ca.split()) in "".join(written.read_text(encoding="utf-8").split())
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_existing_files_are_named_and_kept_unless_forced() -> None:
    Path("notes").mkdir()
    Path("notes/policy.yaml").write_text("mine", encoding="utf-8")
    refused = invoke("init", "notes", *NOTES, *KEYCLOAK)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        "authplane: authplane does not overwrite existing files: notes/policy.yaml. Use another folder,"
        " or add --force.\n"
    )
    assert [each.name for each in Path("notes").iterdir()] == ["policy.yaml"]
    assert Path("notes/policy.yaml").read_text(encoding="utf-8") == "mine"
    assert invoke("init", "notes", *NOTES, *KEYCLOAK, "--force").exit_code == 0
    assert "AccessPolicy" in Path("notes/policy.yaml").read_text(encoding="utf-8")


REFUSED = {
    "nothing given": (
        (),
        "--url, --issuer and --group are missing. Pass the missing options, or run the command on a terminal, where"
        " authplane asks for them.",
    ),
    "no groups": (
        ("--url", "http://a.example/", *KEYCLOAK),
        "--group is missing. Pass the missing options, or run the command on a terminal, where authplane asks for"
        " them.",
    ),
    "no URL": (
        ("--url", "a.example"),
        "--url: 'a.example' does not start with http:// or https://. Use a URL such as http://127.0.0.1:7000/mcp.",
    ),
    "an issuer without TLS": (
        ("--issuer", "http://a.example"),
        "--issuer: 'http://a.example' does not start with https://. "
        "Use the issuer's URL, or dev for a development issuer.",
    ),
    "a group without tools": (
        ("--group", "readers="),
        "--group: 'readers=' does not name a group and its tools. Use GROUP=TOOL,TOOL or GROUP=* for every tool.",
    ),
    "a group twice": (
        (*NOTES, *KEYCLOAK, "--group", "readers=x"),
        "The group 'readers' occurs twice. Name the group once, with all its tools.",
    ),
    "no name": (
        ("--name", "My Notes"),
        "--name: 'My Notes' is not a name. Use lower-case letters, digits and hyphens.",
    ),
    "a line break in an audience": (
        ("--audience", "a\nb"),
        "--audience: 'a\\nb' is not an audience. Use the value that the issuer writes into the claim 'aud'.",
    ),
    "questions and Contour": (
        ("--from-contour", "x", "--url", "http://a.example/"),
        "You cannot combine --from-contour with --url, --issuer, --audience or --group. Remove these options.",
    ),
    "the folder itself": (
        ("--from-contour", "."),
        "notes is inside ., which authplane does not change. Use another folder.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_with_a_remedy_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    options, message = REFUSED[case]
    refused = invoke("init", "notes", *options)
    assert (refused.exit_code, refused.stdout, refused.stderr) == (2, "", f"authplane: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_gives_out_credentials_is_refused() -> None:
    refused = invoke("init", "notes", *NOTES, *KEYCLOAK, "--url", "http://169.254.169.254/mcp")
    assert refused.exit_code == 1
    assert "UrlNotPermitted" in refused.stderr
    assert "Correct the answers and run init again." in refused.stderr
    assert not Path("notes").exists()


@pytest.mark.real
def test_init_prompts_on_a_terminal_until_the_answers_are_valid(tmp_path: Path) -> None:
    typed = ["127.0.0.1", "http://127.0.0.1:7000/mcp", "", "", "readers", "readers=add", "admins=*", ""]
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "authplane", "init", "notes"],
        stdin=terminal, stdout=terminal, stderr=terminal, cwd=tmp_path,
    ) as program:  # fmt: skip
        os.close(terminal)
        os.write(controller, "".join(f"{line}\n" for line in typed).encode())
        shown = b""
        while True:
            try:
                read = os.read(controller, 65536)
            except OSError:  # the program has closed the terminal
                break
            if not read:
                break
            shown += read
        assert program.wait(START_LIMIT) == 0, shown
    os.close(controller)
    assert b"URL of the MCP server" in shown
    assert b"does not start with http://" in shown
    assert b"does not name a group and its tools" in shown
    assert Path("notes/dev-issuer.yaml").exists()
    tested = invoke("test", "notes")
    assert tested.exit_code == 0
    assert "admins may call any_tool" in tested.output


def test_what_contours_resources_become_is_written_and_told() -> None:
    Path("old").mkdir()
    Path("old/shop.yaml").write_text(
        """\
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: shop}
spec:
  virtualhost: {fqdn: shop.example}
  routes: [{services: [{name: shop, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: blog}
""",
        encoding="utf-8",
    )
    made = invoke("init", "new", "--from-contour", "old")
    assert (made.exit_code, made.stderr) == (0, "")
    assert made.stdout == (
        "Wrote new:\n"
        "  shop.yaml\n"
        "\n"
        "Not moved:\n"
        "  - Ingress (1): authplane does not use these documents. Write an HTTPProxy for each host.\n"
        "\n"
        "Missing:\n"
        "  - The folder has no configuration of Contour. If Contour's configuration sets globalExtAuth,"
        " authplane would serve "
        "shop.example without authorization. "
        "Export configmaps and contourconfigurations and run init again with --force.\n"
        "  - The folder has no EndpointSlices, so Envoy does not know the addresses of Services. "
        "Export endpointslices and run init again with --force.\n"
        "\n"
        "authplane validate new reports 1 warning.\n"
        "\n"
        "Next, check the folder:\n"
        "  authplane validate new\n"
        "\n"
        "Then start each of these programs in its own terminal:\n"
        "  authplane run new\n"
        "\n"
        "While these programs run, check that Envoy can reach all servers:\n"
        "  authplane doctor new\n"
    )
    assert invoke("validate", "new").exit_code == 0
    again = invoke("init", "new", "--from-contour", "old")
    assert (again.exit_code, "does not overwrite existing files: new/shop.yaml" in again.stderr) == (1, True)
    missing = invoke("init", "other", "--from-contour", "nowhere")
    assert missing.exit_code == 2
