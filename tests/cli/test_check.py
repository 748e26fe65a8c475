"""`authplane check`: requests are judged as a server judges them, and the answer says what was assumed."""

import asyncio
import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result
from tests.support.authservers.server_process import Server
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, SCOPED, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.names import AGENT, ISSUER

from authplane.cli.main import build_app
from authplane.core.names import Ref
from authplane.devkit.local.dev_issuer import dev_workload
from authplane.devkit.policies.checking import Circumstances, check, enforce
from authplane.devkit.policies.request_files import AskedRequest, parse_requests
from authplane.devkit.strict_files import parse_text
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import compile_policies
from authplane.policy.decide.decide import MEANS
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CEL = '[{type: CEL, cel: {expression: "identity.group == \\"admin\\"", message: only admins}}]'
RULES = f"""
  - {{name: agents, source: {{type: SPIFFE, spiffe: {AGENT}}}, authorization: {ADD}}}
  - {{name: staff, source: {OIDC}, authorization: {CEL}}}
"""
WORLD = (BACKEND, policy(RULES))
SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: authz, labels: {kubernetes.io/service-name: authz}}
addressType: IPv4
ports: [{port: 9999}]
endpoints: [{addresses: [127.0.0.1]}]
"""
TARGET = "{kind: Backend, name: shop}"
CALL = "{method: tools/call, params: {name: add}}"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


def loaded(*documents: str) -> Loaded:
    library = Library(RequiredTargets())
    library.changed("a.yaml", "\n---\n".join(documents).encode())
    return library.current()


def requests(text: str) -> tuple[AskedRequest, ...]:
    found = parse_requests(parse_text("r.yaml", text.encode(), binary="body"))
    assert found.findings == ()
    return found.requests


def asked(peer: str = "{}", mcp: str = CALL, more: str = "") -> str:
    return f"{{target: {TARGET}, mcp: {mcp}, peer: {peer}{more}}}"


def assumed(claims: str, issuer: str = ISSUER) -> str:
    return f"{{token: {{issuer: '{issuer}', claims: {claims}}}}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "gateway"
    place.mkdir()
    (place / "all.yaml").write_text("\n---\n".join(WORLD), encoding="utf-8")
    return place


def answer(folder: Path, request: str, *options: str) -> Any:
    """Ask as a program does."""
    file = folder.parent / "request.yaml"
    file.write_text(request, encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file), "-o", "json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def short(record: dict[str, Any]) -> tuple[str, int | None, str, str]:
    return record["decision"], record["httpStatus"], record["rule"], record["reason"]


class Case(NamedTuple):
    request: str
    want: tuple[str, int | None, str, str]


CASES = {
    "a workload that a rule names": Case(
        asked(f"{{spiffe: {AGENT}}}"), ("allow", None, "agents", "granted")
    ),
    "a tool that is not listed": Case(
        asked(f"{{spiffe: {AGENT}}}", "{method: tools/call, params: {name: drop}}"),
        ("deny", 403, "agents", "tool_not_listed"),
    ),
    "the base protocol": Case(
        asked(f"{{spiffe: {AGENT}}}", "{method: tools/list}"), ("allow", None, "agents", "base_protocol")
    ),
    "a notification": Case(
        asked(f"{{spiffe: {AGENT}}}", "{method: notifications/initialized}"),
        ("allow", None, "agents", "base_protocol"),
    ),
    "nobody": Case(asked(), ("deny", 401, "", "no_token")),
    "a workload of another trust domain": Case(
        asked("{spiffe: spiffe://other.example/ns/default/sa/agent}"), ("deny", 401, "", "no_token")
    ),
    "claims that fit": Case(
        asked(assumed("{sub: ann, aud: shop, group: admin}")), ("allow", None, "staff", "granted")
    ),
    "claims that do not": Case(asked(assumed("{aud: shop, group: user}")), ("deny", 403, "staff", "cel_false")),
    "claims for somebody else": Case(asked(assumed("{aud: bank}")), ("deny", 401, "", "other_audience")),
    "claims that have ended": Case(
        asked(assumed("{aud: shop, exp: 1}")), ("deny", 401, "", "bad_token:token_expired")
    ),
    "claims of an issuer that no policy names": Case(
        asked(assumed("{aud: shop}", "https://other.example")), ("deny", 401, "", "bad_token:issuer_unknown")
    ),
    "no request of MCP": Case(
        f"{{target: {TARGET}, body: hello, peer: {{spiffe: {AGENT}}}}}",
        ("deny", 415, "agents", "mcp:content_type"),
    ),
}  # fmt: skip


def test_a_target_that_is_not_there_is_an_error_with_its_place(folder: Path) -> None:
    file = folder.parent / "request.yaml"
    file.write_text(asked().replace("name: shop", "name: shopp"), encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        f"{file}:1:2: error: Backend/default/shopp is not a target of this folder. Did you mean"
    )
    assert "'Backend/default/shop'?" in result.stderr


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_request_is_judged(case: Case, folder: Path) -> None:
    assert short(answer(folder, case.request)) == case.want


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_explaining_changes_no_decision(case: Case) -> None:
    enforced = enforce(loaded(*WORLD))
    [request] = requests(case.request)
    explained = check(enforced.policies, request, Circumstances(now=NOW)).verdict
    plain = check(enforced.policies, request, Circumstances(now=NOW, means=MEANS)).verdict
    assert (plain.decision, plain.grounds) == (explained.decision, explained.grounds)
    assert plain.trace is None


def test_a_list_is_answered_by_a_list(folder: Path) -> None:
    found = answer(folder, f"- {asked()}\n- {asked(f'{{spiffe: {AGENT}}}')}\n")
    assert [each["decision"] for each in found] == ["deny", "allow"]


def test_the_whole_answer_says_what_was_tried_and_assumed(folder: Path) -> None:
    rule_of_agents = {
        "rule": "agents",
        "source": f"SPIFFE {AGENT}",
        "matched": False,
        "identity": "",
        "reason": "no_peer_identity",
        "hint": "use the certificate of a workload that the rule names",
        "entries": [],
    }
    part = {"text": "identity.group", "line": 1, "column": 9, "value": '"user"', "parts": []}
    entry = {
        "entry": "0:CEL",
        "granted": False,
        "reason": "cel_false",
        "hints": ['identity.group must be "admin"; it is "user"'],
        "expression": {
            "text": 'identity.group == "admin"',
            "line": 1,
            "column": 16,
            "value": "false",
            "parts": [part],
        },
    }
    assert answer(folder, asked(assumed("{sub: ann, aud: shop, group: user}"))) == {
        "decision": "deny",
        "httpStatus": 403,
        "policy": "AccessPolicy/default/p",
        "rule": "staff",
        "entry": "0:CEL",
        "reason": "cel_false",
        "identity": f"{ISSUER}#ann",
        "mcpMethod": "tools/call",
        "tool": "add",
        "notes": [f"assumed: {ISSUER} signed the claims; no signature was verified"],
        "trace": [
            {
                "policy": "AccessPolicy/default/p",
                "target": "Backend/default/shop",
                "passed": False,
                "reason": "cel_false",
                "rules": [
                    rule_of_agents,
                    {
                        "rule": "staff",
                        "source": f"OIDC {ISSUER} for shop",
                        "matched": True,
                        "identity": f"{ISSUER}#ann",
                        "reason": "",
                        "hint": "",
                        "entries": [entry],
                    },
                ],
            }
        ],
        "shadow": [],
    }


def test_bytes_are_taken_as_they_are(folder: Path) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"},"x":"\xff"}'
    headers = "{content-type: application/json, accept: 'application/json, text/event-stream'}"
    given = f"target: {TARGET}\nheaders: {headers}\npeer: {{spiffe: {AGENT}}}\n"
    whole = f"{given}body: !!binary |\n  {base64.b64encode(body).decode()}\n"
    assert short(answer(folder, whole))[3] == "mcp:not_json"
    fit = base64.b64encode(body.replace(b"\xff", b"y")).decode()
    assert short(answer(folder, f"{given}body: !!binary {fit}\n"))[0] == "allow"


def test_a_certificate_is_looked_at(folder: Path, tmp_path: Path) -> None:
    made = dev_workload(tmp_path / "dev", AGENT, "agent", now=datetime.now(UTC))
    pem = json.dumps(made.certificate.read_text(encoding="utf-8"))
    found = answer(folder, asked(f"{{certificate: {pem}}}"))
    assert (*short(found), found["notes"]) == (
        "allow",
        None,
        "agents",
        "granted",
        ["assumed: the proxy verified the peer's certificate"],
    )
    authority = json.dumps(made.ca.read_text(encoding="utf-8"))
    assert short(answer(folder, asked(f"{{certificate: {authority}}}")))[3] == "no_token"
    late = asked(f"{{certificate: {pem}}}", more=", time: '2099-01-01T00:00:00Z'")
    assert short(answer(folder, late))[0] == "deny"


def test_external_services_are_not_asked_and_the_answer_says_so(folder: Path) -> None:
    documents = (BACKEND, SERVICES, policy(anybody(f"[{asks()}]")))
    (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
    found = answer(folder, asked())
    assert (*short(found), found["notes"]) == (
        "unavailable",
        503,
        "rule-0",
        "external:not_asked",
        ["not called: external service default/authz:9000. Use --ask to call it."],
    )
    [entry] = found["trace"][0]["rules"][0]["entries"]
    assert (entry["granted"], entry["reason"]) == (False, "external:not_asked")
    explained = invoke("check", str(folder), "--request", str(folder.parent / "request.yaml"), "--explain").stdout
    assert ": makes no decision (external:not_asked)\n" in explained


@pytest.mark.real
@pytest.mark.parametrize("protocol", ["GRPC", "HTTP"])
async def test_external_services_are_called_if_requested(protocol: str, folder: Path) -> None:
    server = Server()
    async with server.running("testserver", "--mode", "path", "--engine", "grpcio", http=True, admin=False):
        port = server.grpc if protocol == "GRPC" else server.http
        entry = f"[{asks().replace('GRPC', protocol)}]"
        documents = (BACKEND, SERVICES, SLICE.replace("9999", str(port)), policy(anybody(entry)))
        (folder / "all.yaml").write_text("\n---\n".join(documents), encoding="utf-8")
        both = f"- {asked(more=', path: /allow')}\n- {asked(more=', time: 2020-01-01T00:00:00Z')}\n"
        found = await asyncio.to_thread(answer, folder, both, "--ask")
        assert [(*short(each), each["notes"]) for each in found] == [
            ("allow", None, "rule-0", "granted", []),
            ("deny", 401, "rule-0", "external:denied", []),
        ]
    late = await asyncio.to_thread(answer, folder, asked(more=", path: /allow"), "--ask")
    assert short(late) == ("unavailable", 503, "rule-0", "external:no_answer")


def test_missing_scopes_are_named(folder: Path) -> None:
    (folder / "all.yaml").write_text("\n---\n".join((BACKEND, policy(rule(SCOPED)))), encoding="utf-8")
    found = answer(folder, asked(assumed("{aud: shop, scope: other}")))
    assert short(found) == ("deny", 403, "", "scope_missing")
    assert found["trace"][0]["rules"][0]["hint"] == "use a token that has one of the scopes tools admin"


@pytest.mark.parametrize(
    ("claims", "reason", "hint"),
    [
        (
            "{aud: cafe}",
            "other_audience",
            'the token is for audience "cafe". Use a token whose audience is "shop".',
        ),
        (
            "{aud: shop, exp: 1700000000}",
            "bad_token:token_expired",
            "the token expired at 2023-11-14T22:13:20Z. The allowed clock skew is 30 s. Get a new token.",
        ),
    ],
    ids=["another audience", "expired"],
)
def test_what_is_wrong_with_a_token_is_said(folder: Path, claims: str, reason: str, hint: str) -> None:
    (folder / "all.yaml").write_text("\n---\n".join((BACKEND, policy(rule(SCOPED)))), encoding="utf-8")
    found = answer(folder, asked(assumed(claims)))
    assert short(found) == ("deny", 401, "", reason)
    assert found["trace"][0]["rules"][0]["hint"] == hint


def test_policies_of_a_named_gateway_are_evaluated_and_an_unreached_gateway_is_reported(folder: Path) -> None:
    edge = policy(
        rule("{type: SPIFFE, spiffe: spiffe://cluster.local/edge}"),
        name="edge",
        targets="[{kind: Gateway, name: edge}]",
    )
    (folder / "all.yaml").write_text("\n---\n".join((*WORLD, GATEWAY, edge)), encoding="utf-8")
    alone = answer(folder, asked(f"{{spiffe: {AGENT}}}"))
    assert alone["decision"] == "allow"
    assert alone["notes"][1].startswith("not evaluated: policies of Gateways")
    through = asked(f"{{spiffe: {AGENT}}}").replace(
        "name: shop}", "name: shop, gateway: {name: edge, sectionName: web}}"
    )
    found = answer(folder, through)
    assert (found["decision"], found["policy"], len(found["notes"])) == ("deny", "AccessPolicy/default/edge", 1)
    [request] = requests("{target: {kind: Gateway, name: edge, sectionName: admin}, path: '/a?b=c'}")
    assert (request.target, request.request.path, request.request.query) == (
        RequestTarget(gateway=Ref("Gateway", "default", "edge"), section="admin"),
        "/a",
        "b=c",
    )


def test_a_policy_with_a_mistake_denies_and_is_counted(folder: Path) -> None:
    broken = (folder / "all.yaml").read_text(encoding="utf-8").replace('\\"admin\\"', "nonsense")
    (folder / "all.yaml").write_text(broken, encoding="utf-8")
    file = folder.parent / "r.yaml"
    file.write_text(asked(f"{{spiffe: {AGENT}}}"), encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file))
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        0,
        "deny 403  AccessPolicy/default/p: policy_unusable:InvalidCEL",
    )
    assert f"Run 'authplane lint {folder}'" in result.stderr


def test_explanations_hide_secrets_and_control_characters(folder: Path) -> None:
    expression = "request.headers.authorization == identity.sub || identity.password == 'x'"
    entry = f'[{{type: CEL, cel: "{expression}"}}]'
    (folder / "all.yaml").write_text("\n---\n".join((BACKEND, policy(rule(OIDC, entry)))), encoding="utf-8")
    file = folder.parent / "r.yaml"
    file.write_text(asked(assumed('{sub: "a\\e[31m", aud: shop, password: hunter2}')), encoding="utf-8")
    text = invoke("check", str(folder), "--request", str(file), "--explain").stdout
    assert "hunter2" not in text
    assert "eyJ" not in text
    assert "\x1b" not in text
    assert "identity.password = (hidden)" in text
    assert text.splitlines()[1] == rf"   identity {ISSUER}#a\x1b[31m"


def test_files_that_are_not_there_are_one_sentence(folder: Path) -> None:
    file = folder.parent / "r.yaml"
    missing = invoke("check", str(folder), "--request", str(file))
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    both = invoke("check", str(folder / "nowhere"), "--request", str(file))
    assert (both.exit_code, "nowhere: No such file" in both.stderr) == (2, True)
    file.write_text(asked(), encoding="utf-8")
    missing = invoke("check", str(folder / "nowhere"), "--request", str(file))
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert invoke("check", str(folder)).exit_code == 2


def test_what_the_server_enforces_is_what_is_checked() -> None:
    documents = loaded(*WORLD)
    assert enforce(documents).compiled == compile_policies(documents.resources)
