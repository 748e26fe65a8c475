"""`authplane decisions`: one table, whoever counted."""

import asyncio
import json
import textwrap
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

COUNTERS = {
    "http.gateway.rbac.policy.shop/tools.v1/reads/0:InlineTools.allowed": 12,
    "http.gateway.rbac.policy.shop/other/r/0:CEL.shadow_allowed": 3,
    "http.gateway.rbac.denied": 4,
}
METRICS = """\
# TYPE authplane_policy_decisions_total counter
authplane_policy_decisions_total{backend="a",policy="X/shop/tools.v1",rule="reads",entry="1:CEL",decision="allow"} 5
# TYPE authplane_shadow_decisions_total counter
authplane_shadow_decisions_total{backend="a",policy="AccessPolicy/shop/next",outcome="deny",decision="allow"} 2
"""
NOWHERE = TcpAddress(host="127.0.0.1", port=1)


@asynccontextmanager
async def answering(pages: Mapping[str, str], address: Address | None = None) -> AsyncGenerator[Address]:
    """Answer with pages, by what their addresses begin with."""

    def respond(request: HttpRequest) -> HttpResponse:
        found = [text for begin, text in pages.items() if request.target.startswith(begin)]
        return HttpResponse(status=200 if found else 404, body="".join(found).encode())

    async with serve_http(address or TcpAddress(host="127.0.0.1", port=free_port()), respond) as bound:
        yield bound


def envoy_pages() -> dict[str, str]:
    listed = [{"name": name, "value": count} for name, count in COUNTERS.items()]
    return {"/stats?format=json&": json.dumps({"stats": listed})}


async def decisions(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, build_app(), ["decisions", *arguments])


async def test_a_person_sees_one_table(tmp_path: Path) -> None:
    socket = UnixAddress(path=str(tmp_path / "envoy.sock"))
    async with answering(envoy_pages(), socket) as envoy, answering({"/metrics": METRICS}) as server:
        result = await decisions("--envoy", str(envoy), "--server", f"http://{server}/")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == textwrap.dedent("""\
        POLICY         RULE   ENTRY          DECIDED BY                  ALLOWED  DENIED  UNDECIDED
        -              -      -              Envoy                             0       4          0
        shop/next      -      -              policy server, in shadow          0       2          0
        shop/other     r      0:CEL          Envoy, with other policies        3       0          0
        shop/tools.v1  reads  0:InlineTools  Envoy                            12       0          0
        shop/tools.v1  reads  1:CEL          policy server                     5       0          0
        A dash (-) means that no rule granted the request. Envoy's access log names the policies of the target.
    """)


async def test_several_envoys_are_added_up() -> None:
    async with answering(envoy_pages()) as one, answering(envoy_pages()) as other:
        result = await decisions("--envoy", str(one), "--envoy", str(other), "--server", "", "-o", "json")
    told = json.loads(result.stdout)
    assert [(each["policy"], each["allowed"], each["denied"]) for each in told["decisions"]] == [
        ("", 0, 8),
        ("shop/other", 6, 0),
        ("shop/tools.v1", 24, 0),
    ]
    assert (result.exit_code, told["silent"]) == (0, [])


async def test_who_does_not_answer_is_named_and_the_rest_is_shown() -> None:
    async with answering({"/metrics": METRICS}) as server:
        result = await decisions("--envoy", str(NOWHERE), "--server", str(server))
    assert result.exit_code == 1
    assert "shop/tools.v1  reads  1:CEL  policy server" in result.stdout
    assert result.stderr == (
        "authplane: Envoy at 127.0.0.1:1 does not answer: Connection refused. The counts do not include its decisions."
        " Set --envoy to an address that answers, or to '' to leave it out.\n"
    )


async def test_who_answers_something_else_is_named() -> None:
    async with answering({"/stats": "<html>"}) as envoy, answering({}) as server:
        result = await decisions("--envoy", str(envoy), "--server", str(server), "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (
        1,
        {
            "decisions": [],
            "silent": [
                {"who": "Envoy", "address": str(envoy), "why": "did not answer with the statistics of Envoy"},
                {"who": "policy server", "address": str(server), "why": "answered 404"},
            ],
        },
    )


async def test_before_the_first_decision_there_is_a_sentence() -> None:
    async with answering({"/stats": '{"stats": []}'}) as envoy:
        result = await decisions("--envoy", str(envoy), "--server", "")
    assert (result.exit_code, result.stdout) == (0, "No decisions yet.\n")


async def test_an_address_that_is_none_is_a_usage_error() -> None:
    result = await decisions("--envoy", "nowhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("authplane: 'nowhere' is not an address")


async def test_a_folder_that_is_not_served_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    result = await decisions(str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f'authplane: authplane run does not serve "{tmp_path}".'
        " Set --envoy and --server to the addresses of Envoy and the policy server.\n"
    )
