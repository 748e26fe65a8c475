"""The test backend."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pytest

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
UNSEEN: Final = ("auth-realm", "auth-username", "auth_handler", "auth_realm", "auth_username")


def _request(path: str = "/", headers: tuple[str, ...] = (), context: Mapping[str, str] | None = None) -> Request:
    return Request(method="GET", path=path, headers=tuple((name, "spoof") for name in headers), context=context or {})


def _allow(*echo: tuple[str, str], remove: tuple[str, ...] = ()) -> Allow:
    return Allow(
        edits=HeaderEdits(set=(("Auth-Handler", "testserver"), *echo), remove=tuple(sorted((*UNSEEN, *remove))))
    )


def _deny(*echo: tuple[str, str]) -> Deny:
    return Deny(
        http_status=401,
        body="The path does not contain 'allow'.\n",
        headers=(("Auth-Handler", "testserver"), *echo),
        rule="testserver path",
    )


class Case(NamedTuple):
    mode: Mode
    request: Request
    want: Decision


CASES: Final = {
    "every request is authorized": Case(Mode.ALL, _request("/x"), _allow()),
    "a path with 'allow' passes": Case(Mode.PATH, _request("/please/allow/me"), _allow()),
    "another path does not": Case(Mode.PATH, _request("/x"), _deny()),
    "the context is echoed on allow, in Go's spelling": Case(
        Mode.ALL,
        _request(context={"overriden_message": "hi", "hostname": "a", "trace-ID": "7"}),
        _allow(
            ("Auth-Context-Hostname", "a"), ("Auth-Context-Overriden_message", "hi"), ("Auth-Context-Trace-Id", "7")
        ),
    ),
    "the context is echoed on deny": Case(
        Mode.PATH, _request(context={"hostname": "a"}), _deny(("Auth-Context-Hostname", "a"))
    ),
    "entries that no header can carry are left out": Case(
        Mode.ALL,
        _request(context={"a b": "1", "b": "x\r\ny: z", "c": "\0", "é": "1", "d": "é", "": "1", "e": "ok"}),
        _allow(("Auth-Context-", "1"), ("Auth-Context-E", "ok")),
    ),
    "keys that differ in case give one header": Case(
        Mode.ALL, _request(context={"a": "small", "A": "large"}), _allow(("Auth-Context-A", "large"))
    ),
    "headers in our name are removed, in every spelling": Case(
        Mode.ALL,
        _request(
            headers=("auth-handler", "auth-context-a", "auth-context-b", "auth_context_a", "auth_user-name",
                     "auth-user_name", "auth-username", "x-auth-username", "authorization"),
            context={"a": "1"},
        ),
        _allow(("Auth-Context-A", "1"), remove=("auth-context-b", "auth_context_a")),
    ),
}  # fmt: skip


@pytest.mark.requirement("E01")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_decide(case: Case) -> None:
    assert TestServer(mode=case.mode).decide(case.request, NOW) == case.want


def test_the_query_is_no_part_of_the_path() -> None:
    request = Request(method="GET", path="/x", query="y=allow")
    assert TestServer(mode=Mode.PATH).decide(request, NOW) == _deny()


@pytest.mark.requirement("E24")
def test_ever_new_names_of_a_client_take_no_memory() -> None:
    server = TestServer()
    server.decide(_request(headers=(), context={"of": "this test"}), NOW)
    for index in range(50):
        server.decide(_request(headers=(f"auth-context-{index}",), context={"of": "this test"}), NOW)
    assert server._usual_allow.cache_info().currsize == 1
