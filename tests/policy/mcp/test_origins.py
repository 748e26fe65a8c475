"""Web pages: an MCP server is guarded against them by a rule about Origin and host, and ours refuses them by itself."""

import sys
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import httpx2
import pytest
from tests.support.eventually import eventually
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, anybody, policy
from tests.support.policies.judging import judge, word
from tests.support.policies.mcp_requests import call
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, run_process

LISTED: Final = (
    'request.host in ["127.0.0.1:8080", "localhost"] '
    '&& (!("origin" in request.headers) || request.headers["origin"] == "https://app.example.com")'
)


class Case(NamedTuple):
    origins: tuple[str, ...]
    host: str
    allowed: bool


CASES: Final = {
    "no page": Case((), "localhost", True),
    "a listed page": Case(("https://app.example.com",), "localhost", True),
    "another page": Case(("https://evil.example.com",), "localhost", False),
    "a page whose name begins alike": Case(("https://app.example.com.evil",), "localhost", False),
    "another port": Case(("https://app.example.com:444",), "localhost", False),
    "plain text": Case(("http://app.example.com",), "localhost", False),
    "a page without a name": Case(("null",), "localhost", False),
    "an empty one": Case(("",), "localhost", False),
    "two pages": Case(("https://app.example.com", "https://evil.example.com"), "localhost", False),
    "a name that was made to resolve here": Case((), "evil.example.com", False),
    "a name that was made to resolve here, of a listed page": Case(("https://app.example.com",), "evil.com", False),
    "a host with another port": Case((), "127.0.0.1", False),
}


@pytest.mark.requirement("M19")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_rule_lists_the_pages_and_the_names_by_which_a_server_is_called(case: Case) -> None:
    guarded = policies(BACKEND, policy(anybody(f"[{{type: CEL, cel: '{LISTED}'}}]")))
    verdict = judge(guarded, call(host=case.host, headers=tuple(("origin", each) for each in case.origins)))
    assert word(verdict) == ("allow" if case.allowed else "403")


@pytest.fixture
async def tools() -> AsyncIterator[str]:
    """Run the MCP server of the quickstart, as a program."""
    port = free_port()

    async def ignore(_: Line) -> None: ...

    argv = [sys.executable, "-m", "authplane.devkit.local.sample_tools", f"127.0.0.1:{port}"]
    async with run_process(argv, sink=ignore):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.real
@pytest.mark.requirement("M5")
async def test_the_sample_tools_answer_403_to_a_foreign_page(tools: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    async with httpx2.AsyncClient(headers=accept) as http:

        async def asked(**headers: str) -> int:
            return (await http.post(tools, json=message, headers=headers)).status_code

        async def started() -> bool:
            try:
                return await asked() == 200
            except httpx2.TransportError:
                return False

        await eventually(started)
        assert await asked(origin=tools.removesuffix("/mcp")) == 200
        assert [await asked(origin=each) for each in ("https://evil.example.com", "null")] == [403, 403]
        assert await asked(host="evil.example.com") == 421
