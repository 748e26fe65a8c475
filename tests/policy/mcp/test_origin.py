from typing import Final, NamedTuple

import pytest

from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal
from authplane.policy.mcp.origin import Callers, fault_in_origin, fit_origin

CALLERS: Final = Callers(
    origins=frozenset({"https://app.example.com"}), hosts=frozenset({"127.0.0.1:8080", "localhost"})
)


class Case(NamedTuple):
    origins: tuple[str, ...]
    host: str
    allowed: bool
    callers: Callers = CALLERS


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
    "two pages in one header": Case(("https://app.example.com,https://evil.example.com",), "localhost", False),
    "a name that was made to resolve here": Case((), "evil.example.com", False),
    "a name that was made to resolve here, of a listed page": Case(("https://app.example.com",), "evil.com", False),
    "the host in capitals": Case((), "LocalHost", True),
    "a host with another port": Case((), "127.0.0.1", False),
    "any host": Case((), "anything", True, Callers()),
    "a page where none is listed": Case(("https://app.example.com",), "anything", False, Callers()),
}


@pytest.mark.requirement("M5", "M19")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_page_calls_a_server_only_if_it_is_listed_and_by_a_name_that_is_listed(case: Case) -> None:
    headers = [("accept", "*/*"), *(("Origin", each) for each in case.origins)]
    want = None if case.allowed else McpRefusal(http_status=403, code=-32600, fault=Fault.ORIGIN)
    assert fault_in_origin(headers, case.host, case.callers) == want


@pytest.mark.parametrize(
    ("origin", "want"),
    [
        ("https://a.example", True),
        ("http://localhost:3000", True),
        ("http://[::1]:80", True),
        ("https://a.example/", False),
        ("HTTPS://a.example", False),
        ("https://*", False),
        ("null", False),
        ("https://a@b", False),
    ],
)
def test_fit_origin(origin: str, want: bool) -> None:
    assert fit_origin(origin) is want
