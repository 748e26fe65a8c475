"""What requests are made of: messages, claims, headers, paths."""

from collections.abc import Mapping
from typing import Any, Final

from tests.differential.model import AGENT, HOST, NEWEST

VERSIONS: Final = (None, "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", NEWEST)
META: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"

METHODS: Final[Mapping[str, Any]] = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "ping": None,
    "server/discover": {},
    "tools/list": {},
    "resources/list": None,
    "resources/read": {"uri": "add"},
    "resources/templates/list": {},
    "resources/subscribe": {"uri": "file:///a"},
    "subscriptions/listen": {},
    "prompts/list": {"cursor": "x"},
    "prompts/get": {"name": "add"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "add"}, "argument": {"name": "a", "value": "b"}},
    "logging/setLevel": {"level": "debug"},
    "tasks/get": {"taskId": "add"},
    "tasks/list": {},
    "notifications/initialized": None,
    "notifications/cancelled": {"requestId": 1},
    "notifications/progress": {"progressToken": 1, "progress": 1},
    "notifications/roots/list_changed": None,
    "elicitation/create": {},
    "x-vendor/tool": {"name": "add"},
    "Tools/Call": {"name": "add"},
    "tools/call ": {"name": "add"},
}
ARGUMENTS: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"a": 1},
    {"a": 11, "b": 2},
    {"a": "1"},
    {"path": "/tmp/abc"},  # noqa: S108 (nobody opens it)
    {"path": "/etc/passwd"},
    {"list": ["x", "y"]},
    {"list": []},
    {"deep": {"x": {"y": "z"}}},
    {"deep": [1]},
    {"a": 9_007_199_254_740_993},
    {"a": 999_999_999_999_999},
    {"a": 1.5},
    {"a": -3.0},
    {"a": 1e300},
    {"a": "11"},
    {"a": True},
    {"a": None},
    {"a": 4},
    {"path": ""},
    {"path": "/home/\u00e9"},
    {"name": "wipe", "method": "x"},
    {"a": 1, "A": 11},
    {"b": 1, "B": 11},
)
CLAIMS: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {},
    {"group": "admin"},
    {"group": "blocked"},
    {"group": ["admin"]},
    {"group": None},
    {"level": 4},
    {"level": 3.5},
    {"level": "9"},
    {"tools": ["add", "wipe"]},
    {"tools": "add"},
    {"scope": "tools"},
    {"scope": "read admin"},
    {"scope": ["tools"]},
    {"scp": ["admin"]},
    {"scp": "tools x"},
    {"scope": "toolsx"},
    {"scope": "read", "scp": "tools"},
    {"sub": 7},
    {"sub": ""},
    {"org": 1234567, "owner_org": 1234567},
    {"org": 1234567, "owner_org": 1234568},
    {"org": "1234567", "owner_org": 1234567},
    {"until": 2_000_000_000},
    {"until": 2_000_000_000_000},
    {"until": "2050-01-01T00:00:00Z"},
    {"until": "10000-01-01T00:00:00Z"},
    {"until": "infinite-future"},
    {"until": "315576000000s"},
    {"level": 4, "tools": ["add", "wipe"]},
    {"place": {"city": "Bonn"}},
    {"place": {"city": "Trier", "": 1}},
    {"place": ["city"]},
    {"place": "city"},
    {"flag": True},
    {"flag": False},
    {"flag": "true"},
    {"flag": "True"},
    {"flag": 1},
)
AUDIENCES: Final[tuple[Any, ...]] = (
    ["shop"], ["desk", "shop"], "desk", "Shop", "shop ", [], ["cafe"], None, 7, "https://shop.example/",
    "https://shop.example", ["shop", 7],
)  # fmt: skip
USUAL_TIMES: Final = (
    {"exp": 3000, "iat": -60},
    {"exp": 3000, "iat": -600, "nbf": -600},
    {"exp": 3000, "iat": -60},
    {"exp": 3000},
)
TIMES: Final[tuple[Mapping[str, int], ...]] = (
    {"exp": -600, "iat": -1200},
    {"exp": 3000, "iat": 1200},
    {"exp": 3000, "nbf": 1200},
    {"exp": 10**12, "iat": -60},
    {},
    {"iat": -60},
)
HEADERS: Final[tuple[Mapping[str, Any], ...]] = (
    {"kid": "unknown"}, {"kid": None}, {"kid": ""}, {"alg": "none"}, {"alg": "HS256"}, {"alg": "ES512"},
    {"typ": "at+jwt"}, {"typ": "x"}, {"typ": None}, {"crit": ["x"], "x": 1}, {"jku": "https://evil.example/keys"},
    {"b64": False}, {"alg": "es256"},
)  # fmt: skip

SCHEMES: Final = ("bearer ", "BEARER ", "Bearer  ", "Bearer\t", "Bearer", "", "DPoP ", "Basic ", "Bearer,", "Bearer x ")

ODD_HEADERS: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (("x-team", "red"),),
    (("x-team", "blue"),),
    (("X-Team", "red"),),
    (("x-team", "red"), ("x-team", "blue")),
    (("x-team", "red"), ("x-team", "red")),
    (("x-team", "red,blue"),),
    (("x_team", "red"),),
    (("x-admin", ""),),
    (("user-agent", "an agent"),),
    (("mcp-session-id", "abc"),),
    (("mcp-session-id", "a b"),),
    (("mcp-session-id", "a"), ("mcp-session-id", "b")),
    (("mcp-name", "add"),),
    (("mcp-name", "=?base64?YWRk?="),),
    (("mcp-name", "wipe"),),
    (("mcp-method", "tools/call"),),
    (("mcp-method", "tools/list"),),
    (("mcp_name", "add"),),
    (("origin", "https://evil.example"),),
    (("x-http-method-override", "GET"),),
    (("upgrade", "websocket"), ("connection", "upgrade")),
    (("upgrade", "h2c"), ("connection", "Upgrade, HTTP2-Settings"), ("http2-settings", "AAMAAABkAAQAAP__")),
    (("connection", "x-team"), ("x-team", "red")),
    (("content-encoding", "gzip"),),
    (("content-encoding", "identity"),),
    (("expect", "100-continue"),),
    (("te", "trailers"),),
    (("x-forwarded-client-cert", f"URI={AGENT}"),),
    (("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "https")),
    (("x-forwarded-host", "other.example"),),
    (("x-envoy-auth-partial-body", "false"),),
    (("x-envoy-original-path", "/public"),),
    (("x-original-url", "/public"), ("x-rewrite-url", "/public")),
    (("x-authplane-identity", AGENT),),
    (("x-spiffe-id", AGENT), ("x-service-account", "agent")),
    (("Remote-User", "root"), ("X-Forwarded-User", "root")),
    (("x-client-cert", "x"), ("x-remote-group", "admin"), ("client-cert", ":x:")),
    (("auth-user", "root"),),
    (("cookie", "a=b"), ("cookie", "c=d")),
    (("last-event-id", "1"),),
    (("content-type", "application/json"),),
    (("accept", "text/html"),),
    (("authorization", "Basic eDp5"),),
    (("proxy-authorization", "Bearer x"),),
)  # fmt: skip
TRAILERS: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (("x-checksum", "1"),),
    (("x-team", "red"),),
    (("authorization", "Bearer x.y.z"), ("mcp-session-id", "abc")),
    (("content-type", "application/json"), ("x-spiffe-id", AGENT)),
)
PATHS: Final = (
    "/mcp/", "/mcp/x", "/other", "/", "/mcp?admin=1", "/mcp?x", "/MCP", "//mcp", "/mcp//x", "/x/../mcp", "/./mcp",
    "/mcp/..", "/%6dcp", "/mcp%2fx", "/mcp;a=b", "/mcp\\x", "/mcp%00", "/mcp/%2e%2e/other", "/mcp?a=/../b", "/mcp%20",
    "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp", "/caf%C3%A9",
)  # fmt: skip
VERBS: Final = ("GET", "DELETE", "PUT", "OPTIONS", "HEAD", "PATCH", "TRACE", "post")
HOSTS: Final = (f"alt.{HOST}", HOST.upper(), f"{HOST}.", f"{HOST}:80", f"a.alt.{HOST}")
