"""The files of `authplane check`: every mistake at once, and the page that shows how they are written."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_check import asked, folder, invoke
from tests.docs.test_pages import arguments
from tests.support.pages import ROOT, blocks, shows, steps

__all__ = ["folder"]


BAD = """\
target: {kind: Bakend, name: shop, sectionNam: x}
method: 'P OST'
path: mcp
headers: {'a b': x, ok: [1]}
body: !!binary '%%%'
mcp: {method: ping, params: [1]}
peer:
  spiffe: https://a.example
  certificate: x
  token: {claims: {a: .inf}}
time: yesterday
tme: x
"""


def test_every_mistake_of_a_file_is_named_at_once(folder: Path) -> None:
    file = folder.parent / "r.yaml"
    file.write_text(BAD, encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    places = re.findall(rf"^{re.escape(str(file))}:(\d+):\d+: error: .*\((\S+), (\w+)\)$", result.stderr, re.MULTILINE)
    assert places == [
        ("1", "target.kind", "FieldInvalid"),
        ("1", "target.sectionNam", "FieldUnknown"),
        ("4", "headers.ok[0]", "TypeMismatch"),
        ("5", "body", "FieldInvalid"),
        ("6", "mcp.params", "TypeMismatch"),
        ("10", "peer.token.claims.a", "FieldInvalid"),
        ("12", "tme", "FieldUnknown"),
    ]
    fixed = BAD.replace("Bakend", "Backend").replace(", sectionNam: x", ", sectionName: x").replace("tme: x\n", "")
    fixed = (
        fixed.replace("[1]}\nbody: !!binary '%%%'", "x}\nbody: x")
        .replace("params: [1]", "params: {}")
        .replace(".inf", "1")
    )
    file.write_text(fixed, encoding="utf-8")
    again = invoke("check", str(folder), "--request", str(file)).stderr
    assert re.findall(r"\((\S+), FieldInvalid\)$", again.replace("a b", "a_b"), re.MULTILINE) == [
        "target.sectionName",
        "method",
        "path",
        "headers.a_b",
        "mcp",
        "peer.spiffe",
        "peer.certificate",
        "peer.token",
        "time",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "": "The file is empty. Add a document.",
        "[]": "The list is empty. Add a request.",
        "just text": "Expected a mapping",
        "a: &x 1": "An anchor (&) is not allowed",
        "target: !!str x": "A tag (!) is not allowed. Remove it.",
        "body: !!binaryx x": "A tag (!) is not allowed. Remove it.",
        "a: 1\na: 2": "occurs twice in this mapping",
        "{": "This is not YAML: ",
        asked("{token: a, spiffe: spiffe://a/b}", more=", headers: {Authorization: x}"): "are mutually exclusive",
        asked("{spiffe: spiffe://a/b}", more=", time: '9999-12-31T23:59:59Z'"): "The value is not a time with a zone",
        asked("{spiffe: spiffe://a/b}", more=", time: '0001-01-01T00:00:00Z'"): "The value is not a time with a zone",
        asked("{token: {}}"): "Use a JWT as a string, or use 'issuer' and 'claims'",
        asked("{token: {jwt: a, claims: {}}}"): "it contains its claims",
        "{target: {kind: Gateway, name: a, gateway: {name: b}}}": "The target is a Gateway itself. Remove 'gateway'.",
    }.items(),
)
def test_what_cannot_be_understood_is_not_judged(text: str, words: str, folder: Path) -> None:
    file = folder.parent / "r.yaml"
    file.write_text(text, encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file), "-o", "json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


PAGES = [
    ROOT / "docs" / "how-to" / f"{name}.md"
    for name in ("identify-workloads", "test-policies", "try-policies-in-shadow", "write-policies")
]
STEPS = [step for page in PAGES for step in steps(page) if arguments(step)[1] != "dev"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.command)
def test_the_pages_about_policies_show_what_is_printed(
    step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in (block for page in PAGES for block in blocks(page)):
        if block.language == "yaml":
            file = tmp_path / block.text.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments(step)[1:])
    assert (result.exit_code, result.stderr) == (0, "")
    assert shows(step.output or "", result.stdout), result.stdout


@pytest.mark.parametrize("command", ["check", "test", "lint"])
def test_every_command_has_an_example(command: str) -> None:
    assert f"Example: authplane {command} " in " ".join(invoke(command, "--help").stdout.split())
