"""`authplane check`: requests are judged as a server judges them, and the answer says what was assumed."""

import asyncio
import base64
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from tests.docs.pages import ROOT, blocks, steps
from tests.docs.test_pages import arguments, shows
from tests.policy.access.world import (
    ADD,
    AGENT,
    BACKEND,
    GATEWAY,
    ISSUER,
    OIDC,
    SCOPED,
    SERVICES,
    anybody,
    asks,
    policy,
    rule,
    settings,
)
from tests.support.authserver import Server
from typer.testing import CliRunner, Result

from authplane.app.checking import Circumstances, check, enforce
from authplane.app.dev_issuer import IssuerPlan, dev_token, dev_workload, serve_issuer
from authplane.app.request_files import AskedRequest, parse_requests
from authplane.app.signing import SigningKey
from authplane.app.strict_files import parse_text
from authplane.base.names import Ref
from authplane.cli.main import app
from authplane.io.listen import TcpAddress
from authplane.policy.access.compile import compile_policies
from authplane.policy.access.decide import MEANS
from authplane.policy.access.guards import Target
from authplane.resources.library import Library
from authplane.resources.loaded import Loaded

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
    return CliRunner().invoke(app, list(arguments))


def loaded(*documents: str) -> Loaded:
    library = Library()
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
    "a target that is not there": Case(
        asked().replace("name: shop", "name: nope"),
        ("unavailable", 503, "", "the target of the request is not known"),
    ),
}  # fmt: skip


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
        "hint": "come with the certificate of a workload that the rule names",
        "entries": [],
    }
    part = {"text": "identity.group", "line": 1, "column": 9, "value": '"user"', "parts": []}
    entry = {
        "entry": "0:CEL",
        "granted": False,
        "reason": "cel_false",
        "hints": ['identity.group would have to be "admin"; it is "user"'],
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
        "notes": [f"assumed: {ISSUER} has signed the claims; no signature was verified"],
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
    }


def test_bytes_are_taken_as_they_are(folder: Path) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"},"x":"\xff"}'
    headers = "{content-type: application/json, accept: 'application/json, text/event-stream'}"
    given = f"target: {TARGET}\nheaders: {headers}\npeer: {{spiffe: {AGENT}}}\n"
    whole = f"{given}body: !!binary |\n  {base64.b64encode(body).decode()}\n"
    assert short(answer(folder, whole))[3] == "mcp:not_json"
    fit = base64.b64encode(body.replace(b"\xff", b"y")).decode()
    assert short(answer(folder, f"{given}body: !!binary {fit}\n"))[0] == "allow"


class TestTokens:
    """Tokens are verified, with keys that somebody gives or that the issuer publishes."""

    KEY = SigningKey.generate()
    CLAIMS: ClassVar = {"iss": ISSUER, "sub": "ann", "aud": "shop", "group": "admin", "exp": 4_000_000_000}

    def keys(self, folder: Path) -> Path:
        file = folder.parent / "keys.json"
        file.write_text(json.dumps({ISSUER: json.loads(self.KEY.key_set())}), encoding="utf-8")
        return file

    def test_a_token_is_verified_with_the_keys_that_are_given(self, folder: Path) -> None:
        token = self.KEY.sign(self.CLAIMS)
        found = answer(folder, asked(f"{{token: {token}}}"), "--keys", str(self.keys(folder)))
        assert (*short(found), found["notes"]) == ("allow", None, "staff", "granted", [])
        header = f"{{target: {TARGET}, mcp: {CALL}, headers: {{authorization: Bearer {token}}}}}"
        assert short(answer(folder, header, "--keys", str(self.keys(folder)))) == short(found)

    def test_a_token_that_somebody_else_has_signed_proves_nothing(self, folder: Path) -> None:
        other = SigningKey(kid=self.KEY.kid, material=SigningKey.generate().material)
        found = answer(folder, asked(f"{{token: {other.sign(self.CLAIMS)}}}"), "--keys", str(self.keys(folder)))
        assert short(found) == ("deny", 401, "", "bad_token:signature_wrong")

    def test_without_keys_nothing_is_known(self, folder: Path) -> None:
        found = answer(folder, asked(f"{{token: {self.KEY.sign(self.CLAIMS)}}}"))
        assert short(found) == ("unavailable", 503, "", "issuer_not_ready")
        assert found["notes"] == [f"not known: the keys of {ISSUER}; give them with --keys, or fetch them with --fetch"]

    def test_time_is_that_of_the_request(self, folder: Path) -> None:
        token = self.KEY.sign({**self.CLAIMS, "exp": 1_900_000_000})
        keys = ("--keys", str(self.keys(folder)))
        times = {
            when: f", time: '{when}'"
            for when in ("2030-03-17T17:46:00Z", "2030-03-17T18:46:00+01:00", "2031-01-01T00:00:00Z")
        }
        found = {
            when: short(answer(folder, asked(f"{{token: {token}}}", more=more), *keys))[3]
            for when, more in times.items()
        }
        assert list(found.values()) == ["granted", "granted", "bad_token:token_expired"]

    def test_a_file_of_keys_with_mistakes_is_not_used(self, folder: Path) -> None:
        keys = folder.parent / "keys.yaml"
        keys.write_text(f"{ISSUER}:\n  keyz: []\n", encoding="utf-8")
        request = folder.parent / "r.yaml"
        request.write_text(asked(), encoding="utf-8")
        result = invoke("check", str(folder), "--request", str(request), "--keys", str(keys))
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"{keys}:1:1: error: expected a key set" in result.stderr

    async def test_keys_are_fetched_as_a_server_does(self, folder: Path) -> None:
        plan = IssuerPlan(folder=folder.parent / "dev", address=TcpAddress(host="127.0.0.1", port=0))
        now = datetime.now(UTC)
        async with serve_issuer(plan, now) as running:
            text = (folder / "all.yaml").read_text(encoding="utf-8").replace(ISSUER, running.url)
            issuers = f"{{issuers: [{{url: '{running.url}', caFile: '{running.ca_file}'}}]}}"
            (folder / "all.yaml").write_text(f"{text}\n---\n{settings(issuers)}", encoding="utf-8")
            claims = {"sub": "ann", "aud": "shop", "group": "admin"}
            token = dev_token(plan.folder, claims, now=now, lifetime=timedelta(hours=1))
            request = asked(f"{{token: {token}}}")
            found = await asyncio.to_thread(answer, folder, request, "--fetch", "--allow-private-issuers")
            assert short(found) == ("allow", None, "staff", "granted")
            found = await asyncio.to_thread(answer, folder, request, "--fetch")
            assert short(found) == ("unavailable", 503, "", "issuer_not_ready")


def test_a_certificate_is_looked_at(folder: Path, tmp_path: Path) -> None:
    made = dev_workload(tmp_path / "dev", AGENT, "agent", now=datetime.now(UTC))
    pem = json.dumps(made.certificate.read_text(encoding="utf-8"))
    found = answer(folder, asked(f"{{certificate: {pem}}}"))
    assert (*short(found), found["notes"]) == (
        "allow",
        None,
        "agents",
        "granted",
        ["assumed: the proxy has verified the certificate of the peer"],
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
        ["not asked: the external service default/authz:9000; --ask asks it"],
    )
    [entry] = found["trace"][0]["rules"][0]["entries"]
    assert (entry["granted"], entry["reason"]) == (False, "external:not_asked")


@pytest.mark.parametrize("protocol", ["GRPC", "HTTP"])
async def test_external_services_are_asked_if_that_is_wanted(protocol: str, folder: Path) -> None:
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
            ("deny", 403, "rule-0", "external:denied", []),
        ]
    late = await asyncio.to_thread(answer, folder, asked(more=", path: /allow"), "--ask")
    assert short(late) == ("unavailable", 503, "rule-0", "external:no_answer")


def test_missing_scopes_are_named(folder: Path) -> None:
    (folder / "all.yaml").write_text("\n---\n".join((BACKEND, policy(rule(SCOPED)))), encoding="utf-8")
    found = answer(folder, asked(assumed("{aud: shop, scope: other}")))
    assert short(found) == ("deny", 403, "", "scope_missing")
    assert found["trace"][0]["rules"][0]["hint"] == "come with a token that has one of the scopes tools admin"


def test_policies_of_a_gateway_are_asked_if_it_is_named_and_missed_if_not(folder: Path) -> None:
    edge = policy(
        rule("{type: SPIFFE, spiffe: spiffe://cluster.local/edge}"),
        name="edge",
        targets="[{kind: Gateway, name: edge}]",
    )
    (folder / "all.yaml").write_text("\n---\n".join((*WORLD, GATEWAY, edge)), encoding="utf-8")
    alone = answer(folder, asked(f"{{spiffe: {AGENT}}}"))
    assert alone["decision"] == "allow"
    assert alone["notes"][1].startswith("not asked: the policies of Gateways")
    through = asked(f"{{spiffe: {AGENT}}}").replace(
        "name: shop}", "name: shop, gateway: {name: edge, sectionName: web}}"
    )
    found = answer(folder, through)
    assert (found["decision"], found["policy"], len(found["notes"])) == ("deny", "AccessPolicy/default/edge", 1)
    [request] = requests("{target: {kind: Gateway, name: edge, sectionName: admin}, path: '/a?b=c'}")
    assert (request.target, request.request.path, request.request.query) == (
        Target(gateway=Ref("Gateway", "default", "edge"), section="admin"),
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
    assert f"see authplane lint {folder}" in result.stderr


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
        "": "the file is empty",
        "[]": "there is no request in the list",
        "just text": "expected a mapping",
        "a: &x 1": "an anchor (&) is not allowed",
        "target: !!str x": "a tag (!) is not allowed",
        "body: !!binaryx x": "a tag (!) is not allowed",
        "a: 1\na: 2": "stands twice",
        "{": "this is not YAML",
        asked("{token: a, spiffe: spiffe://a/b}", more=", headers: {Authorization: x}"): "cannot both be given",
        asked("{token: {}}"): "expected a JWT as text, or 'issuer' and 'claims'",
        asked("{token: {jwt: a, claims: {}}}"): "which has its claims in it",
        "{target: {kind: Gateway, name: a, gateway: {name: b}}}": "a Gateway is not behind another one",
    }.items(),
)
def test_what_cannot_be_understood_is_not_judged(text: str, words: str, folder: Path) -> None:
    file = folder.parent / "r.yaml"
    file.write_text(text, encoding="utf-8")
    result = invoke("check", str(folder), "--request", str(file), "-o", "json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_files_that_are_not_there_are_one_sentence(folder: Path) -> None:
    file = folder.parent / "r.yaml"
    missing = invoke("check", str(folder), "--request", str(file))
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    file.write_text(asked(), encoding="utf-8")
    missing = invoke("check", str(folder / "nowhere"), "--request", str(file))
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert invoke("check", str(folder)).exit_code == 2


def test_what_the_server_enforces_is_what_is_checked() -> None:
    documents = loaded(*WORLD)
    assert enforce(documents).compiled == compile_policies(documents.resources)


STEPS = [step for step in steps(ROOT / "docs" / "policies.md") if arguments(step)[1] != "dev"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.command)
def test_the_page_about_policies_shows_what_is_printed(
    step: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in blocks(ROOT / "docs" / "policies.md"):
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
