"""Where the MCP server of a Backend is, and what is wrong with the fields that say so."""

import pytest

from authplane.core.problems import dotted
from authplane.resources.kinds.agentic import McpBackend
from authplane.resources.mcp_places import (
    McpHost,
    McpPlace,
    McpService,
    McpUrl,
    mcp_place,
    parse_mcp_url,
    place_problems,
)


def url(text: str, host: str, port: int, path: str = "/mcp", *, secure: bool = False) -> McpUrl:
    return McpUrl(text=text, secure=secure, host=host, port=port, path=path)


PLACES: dict[str, tuple[McpBackend, McpPlace]] = {
    "a Service": (McpBackend(service_name="a", port=80), McpService(name="a", port=80, path="/mcp")),
    "a host": (
        McpBackend(hostname="a.example", port=443, path="/x"),
        McpHost(hostname="a.example", port=443, path="/x"),
    ),
    "this machine": (
        McpBackend(url="http://127.0.0.1:7000/mcp"),
        url("http://127.0.0.1:7000/mcp", "127.0.0.1", 7000),
    ),
    "the ports of the schemes": (
        McpBackend(url="https://A.example/"),
        url("https://A.example/", "a.example", 443, "/", secure=True),
    ),
    "no path": (McpBackend(url="HTTP://a.example."), url("HTTP://a.example.", "a.example", 80, "/")),
    "an address of IPv6": (McpBackend(url="http://[0:0::1]:1/mcp"), url("http://[0:0::1]:1/mcp", "::1", 1)),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_backend_is_a_service_a_host_or_one_address(case: str) -> None:
    written, place = PLACES[case]
    assert list(place_problems(written)) == []
    assert mcp_place(written) == place


AUTHORITIES = {
    "http://127.0.0.1:7000/mcp": "127.0.0.1:7000",
    "http://a.example/mcp": "a.example",
    "https://a.example:443/mcp": "a.example",
    "https://a.example:80/mcp": "a.example:80",
    "http://[::1]:7000/mcp": "[::1]:7000",
    "https://[::1]/mcp": "[::1]",
}


@pytest.mark.parametrize(("text", "authority"), AUTHORITIES.items())
def test_a_server_gets_the_host_of_its_url(text: str, authority: str) -> None:
    parsed = parse_mcp_url(text)
    assert isinstance(parsed, McpUrl)
    assert parsed.authority == authority


ONE = "A Backend needs exactly one of serviceName, hostname and url."
PROBLEMS = {
    "nothing": (McpBackend(), "spec.mcp", f"{ONE} None of them is set. Set one of the three."),
    "two": (
        McpBackend(hostname="a", url="http://a/"),
        "spec.mcp",
        f"{ONE} hostname and url are set. Set one of the three.",
    ),
    "no port": (McpBackend(hostname="a.example"), "spec.mcp.port", "'port' is required with hostname. Set port."),
    "a port twice": (
        McpBackend(url="http://a.example:1/", port=1),
        "spec.mcp.port",
        "'port' and 'url' exclude each other. Remove 'port': the URL contains it.",
    ),
    "a path twice": (
        McpBackend(url="http://a.example:1/", path="/"),
        "spec.mcp.path",
        "'path' and 'url' exclude each other. Remove 'path': the URL contains it.",
    ),
}
EXAMPLE = "Use a URL such as http://127.0.0.1:7000/mcp."
SCHEME = "does not start with http:// or https://. " + EXAMPLE
URLS = {
    "127.0.0.1:7000/mcp": f"'127.0.0.1:7000/mcp' {SCHEME}",
    "ftp://a.example": f"'ftp://a.example' {SCHEME}",
    "http:/a.example": f"'http:/a.example' {SCHEME}",
    "file:///etc/passwd": f"'file:///etc/passwd' {SCHEME}",
    "http:///mcp": f"'http:///mcp' does not name a host. {EXAMPLE}",
    "http://[::1%25lo]/mcp": f"'http://[::1%25lo]/mcp' does not name a host. {EXAMPLE}",
    "http://[v1.x]/mcp": f"'http://[v1.x]/mcp' does not name a host. {EXAMPLE}",
    "http://[::1/mcp": f"'http://[::1/mcp' is not a URL. {EXAMPLE}",
    "http://a.example:70000/": f"'http://a.example:70000/' is not a URL. {EXAMPLE}",
    "http://a.example:x/": f"'http://a.example:x/' is not a URL. {EXAMPLE}",
    "http://a.example:0/": "'http://a.example:0/' has no usable port. "
    "Use a port from 1 to 65535, or leave out the colon.",
    "http://a.example:/": "'http://a.example:/' has no usable port. "
    "Use a port from 1 to 65535, or leave out the colon.",
    "http://a.example/?x": "'http://a.example/?x' has a query or a fragment. "
    "Remove the '?' or '#' and everything after it.",
    "http://a.example/#": "'http://a.example/#' has a query or a fragment. "
    "Remove the '?' or '#' and everything after it.",
    "http://a b/": "'http://a b/' contains spaces or characters that a URL must encode. Write them as %XX.",
    "http://a\n/": "'http://a\\n/' contains spaces or characters that a URL must encode. Write them as %XX.",
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_fields_that_exclude_each_other_are_named_with_a_remedy(case: str) -> None:
    written, path, message = PROBLEMS[case]
    assert [(dotted(each.path), each.message) for each in place_problems(written)] == [(path, message)]


@pytest.mark.parametrize(("text", "message"), URLS.items())
def test_what_is_no_usable_url_is_named_with_a_remedy(text: str, message: str) -> None:
    found = list(place_problems(McpBackend(url=text)))
    assert [(dotted(each.path), each.reason, each.message) for each in found] == [
        ("spec.mcp.url", "FieldInvalid", message)
    ]


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    [problem] = place_problems(McpBackend(url="https://alice:secret@a.example/mcp"))
    assert "secret" not in problem.message
    assert "Remove them" in problem.message
