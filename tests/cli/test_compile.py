"""`authplane compile` for people."""

from pathlib import Path

from click.testing import CliRunner
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, configuration, gateway, policy, route
from tests.support.resources.contour_documents import whole

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
        f"  /gone → respond 502  {checked}",
        f"  /port → redirect 302 to …:8443/…  {checked}",
        f"  / → default/echo/80 (0), default/auth/9443 (2)  {checked}",
    ]


def test_a_trial_says_that_nothing_is_enforced(tmp_path: Path) -> None:
    lines = compiled(tmp_path, "Shadow")
    assert "  /gone → respond 502  checked by extension/default/auth within 1 s, not enforced" in lines


NATIVE = f"""{configuration(Path("/run"), (), "")}
---
{gateway(8080, 8443)}
---
{backend("shop")}
---
{service("shop", 9000)}
---
{route("shop", {"shop": 1})}
---
{policy("[{source: {type: SPIFFE, spiffe: 'spiffe://a/b'}, authorization: [{type: InlineTools, tools: [add]}]}]")}
"""


def compiled_for(folder: Path, *options: str) -> str:
    documents = (NATIVE, tls_secret("tls", server("localhost")), ca_secret("ca"))
    (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["compile", str(folder), "-o", "json", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_what_proxies_of_a_release_get_is_shown(tmp_path: Path) -> None:
    rules = "authplane/decide"
    assert rules in compiled_for(tmp_path)
    assert compiled_for(tmp_path, "--envoy", "1.39.3") == compiled_for(tmp_path)
    assert rules in compiled_for(tmp_path, "--envoy", "1.99")
    assert rules not in compiled_for(tmp_path, "--envoy", "1.35")


def test_a_release_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(build_app(), ["compile", str(tmp_path), "--envoy", "newest"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "'newest' is not an Envoy release. Use MAJOR.MINOR, such as 1.39." in result.output
