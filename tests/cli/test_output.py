"""What files say is printed as it is: nothing of it is markup or an emoji, and no line is broken."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.resources.contour_documents import ECHO, PROXY

from authplane.cli.main import build_app

LINE_100 = "#\n" * 94 + PROXY.replace("fqdn:", "fqdm:")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name", ["in.yaml", ":lock:.yaml", "[red]x[/].yaml", "a\\.yaml", "x\\\\/in.yaml", "[/]/y.yaml"]
)
def test_a_place_can_be_copied(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, LINE_100)
    found = invoke("validate", str(tmp_path))
    assert found.exit_code == 1
    places = [line.partition(": error:")[0] for line in found.stdout.splitlines() if ": error:" in line]
    assert f"{path}:100:3" in places


MESSAGES = {
    "an emoji": ":lock:",
    "a tag": "[red]x[/]",
    "an end without a beginning": "[/]",
    "a backslash at the end": "x\\",
    "two of them": "x\\\\",
    "a link": "[link=http://a.example]x[/link]",
}


@pytest.mark.parametrize("text", MESSAGES.values(), ids=MESSAGES.keys())
def test_messages_quote_what_was_written(tmp_path: Path, text: str) -> None:
    written(tmp_path, "echo.yaml", ECHO)
    quoted = "'" + text + "'"
    proxy = PROXY.replace(
        "    tls: {secretName: tls}\n", f"    tls: {{secretName: tls, minimumProtocolVersion: {quoted}}}\n"
    )
    written(tmp_path, "proxy.yaml", proxy)
    said = f'"{text}" is neither 1.2 nor 1.3, so Envoy uses 1.2. Use 1.2 or 1.3.'
    for command in ("validate", "status"):
        assert said in invoke(command, str(tmp_path)).stdout


@pytest.mark.parametrize("kind", MESSAGES.values(), ids=MESSAGES.keys())
def test_kinds_that_are_ignored_are_named_as_they_are(tmp_path: Path, kind: str) -> None:
    written(tmp_path, "other.yaml", f"apiVersion: v1\nkind: '{kind}'\nmetadata: {{name: x}}\n")
    found = invoke("validate", str(tmp_path))
    assert (found.exit_code, f"of other kinds: {kind} 1\n" in found.stdout) == (0, True)


@pytest.mark.parametrize("name", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_folder_that_is_not_there_is_named_as_it_was_typed(tmp_path: Path, name: str) -> None:
    found = invoke("validate", str(tmp_path / name))
    assert found.exit_code == 2
    assert str(tmp_path / name) in found.stderr


@pytest.mark.real
def test_a_terminal_breaks_no_place_in_two(tmp_path: Path) -> None:
    path = written(tmp_path, "a-long-folder/" * 8 + "in.yaml", LINE_100)
    terminal, inside = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "authplane", "validate", str(tmp_path)],
            stdout=inside,
            stderr=inside,
            env={**os.environ, "COLUMNS": "40", "TERM": "xterm"},
            check=False,
            timeout=60,
        )
        os.close(inside)
        shown = b"".join(iter(lambda: _read(terminal), b""))
    finally:
        os.close(terminal)
    assert done.returncode == 1
    assert f"{path}:100:3: ".encode() in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
