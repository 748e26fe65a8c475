"""The three commands that follow `authplane init`."""

import json
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from authplane.devkit.scaffold.answers import DEV, Answers
from authplane.devkit.scaffold.contour_folder import Moved
from authplane.devkit.scaffold.mcp_folder import group_claims


def contour_steps(folder: Path, moved: Moved) -> str:
    """Return what to run next with a folder that comes from Contour."""
    where = quote(str(folder))
    programs = "\n".join(f"  {line}" for line in (*_servers(folder, moved), f"authplane run {where}"))
    return f"""\
Next, check the folder:
  authplane validate {where}

Then start each of these programs in its own terminal:
{programs}

While these programs run, check that Envoy can reach all servers:
  authplane doctor {where}"""


def _servers(folder: Path, moved: Moved) -> Iterator[str]:
    for number, each in enumerate(moved.servers):
        certificate, key = each.certificate or "tls.crt", each.key or "tls.key"
        options = [f"--address 127.0.0.1:{each.port}"]
        if each.secure:
            options += [
                f"--tls-cert-path {quote(str(folder / certificate))}",
                f"--tls-key-path {quote(str(folder / key))}",
            ]
        if number:
            options.append("--metrics-address ''")
        yield f"authplane authserver serve {quote(str(folder / each.document))} {' '.join(options)}"


def next_steps(folder: Path, answers: Answers) -> str:
    """Return what to run next, and what to expect of it."""
    where = quote(str(folder))
    if answers.issuer == DEV:
        return f"""\
Next:
  authplane test {where}
  authplane run {where}
  {_call(answers, _dev_token(answers))}

'authplane run' also starts the development issuer. Run the curl command in another terminal: it calls a tool as a
member of {answers.grants[0].group}.{_placeholder(answers)}
If the tool needs arguments, replace {{}} after "arguments": with them. Without the token, Envoy answers 401.
MCP clients use {answers.served_url}."""
    return f"""\
Next:
  authplane test {where}
  authplane run {where}
  {_call(answers, "")}

The curl command sends no token, so Envoy answers 401. MCP clients use {answers.served_url}."""


def _placeholder(answers: Answers) -> str:
    return " Replace TOOL with the name of a tool." if answers.grants[0].everything else ""


def _call(answers: Answers, token: str) -> str:
    first = answers.grants[0]
    tool = "TOOL" if first.everything else first.tools[0]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    accept = "-H 'accept: application/json, text/event-stream'"
    body = quote(json.dumps(message, ensure_ascii=False, separators=(",", ":")))
    return f"curl -i {answers.served_url} {token}{accept} --json {body}"


def _dev_token(answers: Answers) -> str:
    claims = quote(group_claims(answers, answers.grants[0].group))
    command = f"authplane dev token --sub alice --aud {quote(answers.audience)} --claim {claims}"
    return f'-H "authorization: Bearer $({command})" '
