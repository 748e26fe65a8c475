"""`authplane compile` for people."""

from pathlib import Path

from tests.support.world import whole
from typer.testing import CliRunner

from authplane.cli.main import build_app

PROXY = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: web, annotations: {authplane.dev/authorization-mode: MODE}}
spec:
  virtualhost:
    fqdn: web.example
    tls: {secretName: tls}
    authorization: {extensionRef: {name: auth}, responseTimeout: 1s}
  includes:
  - {name: team, conditions: [{prefix: /team}, {header: {name: X-Team, exact: blue}}]}
  - {name: gone, conditions: [{prefix: /gone}]}
  routes:
  - services: [{name: echo, port: 80}, {name: auth, port: 9443, weight: 2}]
  - conditions: [{exact: /old}]
    requestRedirectPolicy: {scheme: https, hostname: new.example, path: /new, statusCode: 301}
  - conditions: [{prefix: /moved}]
    requestRedirectPolicy: {prefix: /here}
    authPolicy: {disabled: true}
  - conditions: [{prefix: /port}]
    requestRedirectPolicy: {port: 8443}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: team}
spec:
  routes:
  - conditions: [{regex: '/v[0-9]+'}, {queryParameter: {name: q, present: true}}]
    services: [{name: echo, port: 80}]
  - conditions: [{prefix: /x}]
    services: [{name: echo, port: 80}]
    requestHeadersPolicy: {set: [{name: Host, value: origin.example}]}
    pathRewritePolicy: {replacePrefix: [{replacement: /y}]}
"""


def compiled(folder: Path, mode: str) -> list[str]:
    for name, text in (whole() | {"proxy": PROXY.replace("MODE", mode)}).items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["compile", str(folder)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_conditions_redirects_and_whose_a_route_is_are_shown(tmp_path: Path) -> None:
    lines = compiled(tmp_path, "Enforce")
    checked = "checked by extension/default/auth within 1 s, fails closed"
    team = 'if x-team exact "blue"'
    start = lines.index("https://web.example on 0.0.0.0:8443, certificate default/tls")
    assert lines[start + 1 :] == [
        f"  exactly /old → redirect 301 to https://new.example/new  {checked}",
        f"  pattern /team(?:/v[0-9]+) {team} and ?q present → default/echo/80  {checked}  from default/team",
        f"  /team/x/ {team} → default/echo/80 under /y/ as origin.example  {checked}  from default/team",
        f"  /team/x {team} → default/echo/80 under /y as origin.example  {checked}  from default/team",
        "  /moved → redirect 302 to /here…  authorization disabled",
        f"  /gone → answer 502  {checked}",
        f"  /port → redirect 302 to …:8443/…  {checked}",
        f"  / → default/echo/80 (0), default/auth/9443 (2)  {checked}",
    ]


def test_a_trial_says_that_nothing_is_enforced(tmp_path: Path) -> None:
    lines = compiled(tmp_path, "Shadow")
    assert "  /gone → answer 502  extension/default/auth is asked within 1 s, and nothing is enforced" in lines
