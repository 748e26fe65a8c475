"""Single policies, requests, who sends them, and how it ends."""

from typing import Any, NamedTuple

from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.documents import ADD, OIDC, SCOPED, SPIFFE, anybody, rule
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, LIST, call, request
from tests.support.policies.names import AGENT, ISSUER, OTHER

from authplane.policy.check.request import Peer, Request
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.identity.workload_identity.service_account import ServiceAccount

READ = request("resources/read", {"uri": "file:///a"})
PROMPT = request("prompts/get", {"name": "add"})


class Case(NamedTuple):
    rules: str
    asked: Request
    proof: Proof
    want: str
    kind: str = "AccessPolicy"
    version: str = "v1alpha1"


def cel(expression: str) -> str:
    return f"[{{type: CEL, cel: '{expression}'}}]"


def inline(more: str) -> str:
    return f"[{{type: Inline, {more}}}]"


V0: dict[str, Any] = {"kind": "XAccessPolicy", "version": "v0alpha0"}
V1: dict[str, Any] = {"kind": "XAccessPolicy", "version": "v1alpha1"}
SAME_PATH = 'request.path == "/mcp"'
NOTHING = f"[{{source: {SPIFFE}}}]"
ACCOUNT = "{type: ServiceAccount, serviceAccount: {name: agent}}"

ALL_TOOLS = rule(authorization="[{type: InlineTools, tools: ['*']}]")
CASES = {
    # InlineTools
    "a listed tool": Case(rule(), ADD_CALL, workload(), "allow"),
    "another tool": Case(rule(), call("sub"), workload(), "403"),
    "the tool in another case": Case(rule(), call("Add"), workload(), "403"),
    "the tool with a blank": Case(rule(), call("add "), workload(), "403"),
    "the tool with an accent": Case(rule(), call("ádd"), workload(), "403"),
    "the tool as a prompt": Case(rule(), PROMPT, workload(), "403"),
    "a resource under a tools rule": Case(rule(), READ, workload(), "403"),
    "a completion under a tools rule": Case(
        rule(), request("completion/complete", {"ref": {"type": "ref/prompt", "name": "add"}}), workload(), "403"
    ),
    "a task under a tools rule": Case(rule(), request("tasks/get", {"taskId": "add"}), workload(), "403"),
    "a tool call without an id": Case(rule(), call("sub", id=None), workload(), "403"),
    "an allowed tool call without an id": Case(rule(), call(id=None), workload(), "allow"),
    "all tools": Case(ALL_TOOLS, call("wipe"), workload(), "allow"),
    "all tools, one that is called so": Case(ALL_TOOLS, call("*"), workload(), "allow"),
    "all tools, without an id": Case(ALL_TOOLS, call("wipe", id=None), workload(), "allow"),
    "all tools, base": Case(ALL_TOOLS, LIST, workload(), "allow"),
    "all tools, of another workload": Case(ALL_TOOLS, ADD_CALL, workload(OTHER), "403"),
    "all tools and no prompt": Case(ALL_TOOLS, PROMPT, workload(), "403"),
    "all tools and no resource": Case(ALL_TOOLS, READ, workload(), "403"),
    "all tools and no task": Case(ALL_TOOLS, request("tasks/get", {"taskId": "add"}), workload(), "403"),
    "a tool that begins alike": Case(
        rule(authorization="[{type: InlineTools, tools: ['ad*']}]"), ADD_CALL, workload(), "403"
    ),
    "all tools in the first form": Case(f"[{{source: {SPIFFE}, tools: ['*']}}]", call("wipe"), workload(), "allow"),
    "the first form of rules": Case(f"[{{source: {SPIFFE}, tools: [add]}}]", ADD_CALL, workload(), "allow"),
    # Nothing granted
    "no authorization": Case(NOTHING, ADD_CALL, workload(), "403"),
    "no authorization, base": Case(NOTHING, LIST, workload(), "403"),
    "an empty list": Case(rule(authorization="[]"), ADD_CALL, workload(), "403"),
    "an empty object": Case(rule(authorization="{}"), ADD_CALL, workload(), "403"),
    "an empty list of tools": Case(rule(authorization="[{type: InlineTools, tools: []}]"), LIST, workload(), "403"),
    "another rule grants": Case(f"{NOTHING[:-1]}, {rule()[1:]}", ADD_CALL, workload(), "allow"),
    "no rules": Case("[]", ADD_CALL, workload(), "403"),
    "one object for a list": Case(
        rule(authorization="{type: InlineTools, tools: [add]}"), ADD_CALL, workload(), "allow"
    ),
    # Sources
    "another workload": Case(rule(), ADD_CALL, workload(OTHER), "403"),
    "nobody": Case(rule(), ADD_CALL, Proof(), "403"),
    "an id that begins alike": Case(rule(), ADD_CALL, workload(f"{AGENT}-2"), "403"),
    "one of several ids": Case(rule(f"{{type: SPIFFE, spiffe: [{OTHER}, {AGENT}]}}"), ADD_CALL, workload(), "allow"),
    "one of several proofs": Case(rule(), ADD_CALL, workload(OTHER, AGENT), "allow"),
    "an account by its id": Case(rule(ACCOUNT), ADD_CALL, workload(), "allow"),
    "an account of another namespace": Case(
        rule(ACCOUNT), ADD_CALL, workload("spiffe://cluster.local/ns/other/sa/agent"), "403"
    ),
    "an account of another trust domain": Case(
        rule(ACCOUNT), ADD_CALL, workload("spiffe://elsewhere/ns/default/sa/agent"), "403"
    ),
    "an account by its token": Case(rule(ACCOUNT), ADD_CALL, Proof(sa=ServiceAccount("default", "agent")), "allow"),
    "an account by the token of another": Case(rule(ACCOUNT), ADD_CALL, Proof(sa=ServiceAccount("x", "agent")), "403"),
    "an account in one text": Case(
        rule("{type: ServiceAccount, serviceAccount: other/agent}"),
        ADD_CALL,
        workload("spiffe://cluster.local/ns/other/sa/agent"),
        "allow",
    ),
    "a token": Case(rule(OIDC), ADD_CALL, bearer(), "allow"),
    "a token with several audiences": Case(rule(OIDC), ADD_CALL, bearer(aud=["a", "shop"]), "allow"),
    "a token for another server": Case(rule(OIDC), ADD_CALL, bearer(aud="cafe"), "401"),
    "a token for nobody": Case(rule(OIDC), ADD_CALL, bearer(aud=None), "401"),
    "a token of another issuer": Case(rule(OIDC), ADD_CALL, bearer("https://other.example"), "401"),
    "no token": Case(rule(OIDC), ADD_CALL, Proof(), "401"),
    "a bad token": Case(rule(OIDC), ADD_CALL, Proof(shown=Refused(reason=Reason.EXPIRED)), "401"),
    "a certificate for a token": Case(rule(OIDC), ADD_CALL, workload(), "401"),
    "a token for a certificate": Case(rule(), ADD_CALL, bearer(), "403"),
    "keys that are not there": Case(
        rule(OIDC), ADD_CALL, Proof(shown=Refused(reason=Reason.ISSUER_NOT_READY, issuer=ISSUER)), "unavailable"
    ),
    "keys of another issuer that are not there": Case(
        rule(OIDC), ADD_CALL, Proof(shown=Refused(reason=Reason.ISSUER_NOT_READY, issuer="https://x")), "401"
    ),
    "one of the scopes": Case(rule(SCOPED), ADD_CALL, bearer(scope="x admin"), "allow"),
    "none of the scopes": Case(rule(SCOPED), ADD_CALL, bearer(scope="adminx"), "403"),
    "everybody": Case(anybody(ADD), ADD_CALL, Proof(), "allow"),
    "everybody has no claims": Case(anybody(cel('identity.group == "admin"')), ADD_CALL, bearer(group="admin"), "403"),
    "a source without scheme": Case(
        rule("{type: OIDC, oidc: {issuerUrl: issuer.example, audiences: [shop]}}"), ADD_CALL, bearer(), "allow"
    ),
    "a token that has no scheme either": Case(
        rule("{type: OIDC, oidc: {issuerUrl: issuer.example, audiences: [shop]}}"),
        ADD_CALL,
        bearer("issuer.example"),
        "allow",
    ),
    # CEL
    "true": Case(rule(authorization=cel('request.mcp.tool_name.startsWith("ad")')), ADD_CALL, workload(), "allow"),
    "false": Case(rule(authorization=cel('request.mcp.tool_name.startsWith("x")')), ADD_CALL, workload(), "403"),
    "any method": Case(rule(authorization=cel('request.mcp.method == "resources/read"')), READ, workload(), "allow"),
    "an argument": Case(
        rule(authorization=cel("request.mcp.params.a > 3.0")), call(arguments={"a": 5}), workload(), "allow"
    ),
    "an argument that is not there": Case(
        rule(authorization=cel("request.mcp.params.a > 3.0")), ADD_CALL, workload(), "403"
    ),
    "a claim": Case(rule(OIDC, cel('identity.group == "admin"')), ADD_CALL, bearer(group="admin"), "allow"),
    "a claim that is not there": Case(rule(OIDC, cel('identity.group == "admin"')), ADD_CALL, bearer(), "403"),
    "a negation of what is not there": Case(
        rule(OIDC, cel('!(identity.role == "blocked")')), ADD_CALL, bearer(), "403"
    ),
    "an audience in a list": Case(rule(OIDC, cel('"shop" in identity.aud')), ADD_CALL, bearer(aud=["shop"]), "allow"),
    "in a text": Case(rule(OIDC, cel('"shop" in identity.aud')), ADD_CALL, bearer(), "403"),
    "a text against a list": Case(rule(OIDC, cel('identity.aud == "shop"')), ADD_CALL, bearer(aud=["shop"]), "403"),
    "the id of a workload": Case(
        rule(authorization=cel(f'identity.spiffe_id == "{AGENT}"')), ADD_CALL, workload(), "allow"
    ),
    "an account": Case(
        rule(ACCOUNT, cel('identity.service_account == "agent" && identity.namespace == "default"')),
        ADD_CALL,
        workload(),
        "allow",
    ),
    "the path has no query": Case(
        rule(authorization=cel('request.path == "/mcp" && request.query == "a=b" && request.host == "mcp.example"')),
        call(query="a=b"),
        workload(),
        "allow",
    ),
    "a header": Case(
        rule(authorization=cel('request.headers["x-a"] == "b,c"')),
        call(headers=(("x-a", "b"), ("x-a", "c"))),
        workload(),
        "allow",
    ),
    "numbers are doubles": Case(
        rule(OIDC, cel("type(identity.level) == double && identity.level > 3 && identity.level + 1.0 == 6.0")),
        ADD_CALL,
        bearer(level=5),
        "allow",
    ),
    "numbers are no integers": Case(rule(OIDC, cel("identity.level + 1 == 6")), ADD_CALL, bearer(level=5), "403"),
    "a tool that the token names": Case(
        rule(OIDC, cel("has(identity.authorized_tools) && request.mcp.tool_name in identity.authorized_tools")),
        ADD_CALL,
        bearer(authorized_tools=["add"]),
        "allow",
    ),
    "a token that names no tools": Case(
        rule(OIDC, cel("has(identity.authorized_tools) && request.mcp.tool_name in identity.authorized_tools")),
        ADD_CALL,
        bearer(),
        "403",
    ),
    "one of the roles": Case(
        rule(OIDC, cel('identity.role in ["admin", "operator"]')), ADD_CALL, bearer(role="operator"), "allow"
    ),
    "none of the roles": Case(
        rule(OIDC, cel('identity.role in ["admin", "operator"]')), ADD_CALL, bearer(role="guest"), "403"
    ),
    "a NUL in a claim": Case(rule(OIDC, cel('identity.role == "admin"')), ADD_CALL, bearer(role="admin\0x"), "403"),
    # Base protocol
    "base for a source that is granted something": Case(rule(), LIST, workload(), "allow"),
    "base for a token": Case(rule(OIDC), INITIALIZE, bearer(), "allow"),
    "base for nobody": Case(rule(OIDC), INITIALIZE, Proof(), "401"),
    "base for another workload": Case(rule(), INITIALIZE, workload(OTHER), "403"),
    "a stream": Case(
        rule(),
        Request(method="GET", path="/mcp", headers=(("accept", "text/event-stream"),)),
        workload(),
        "allow",
    ),
    "the end of a session": Case(
        rule(), Request(method="DELETE", path="/mcp", headers=(("mcp-session-id", "x"),)), workload(), "allow"
    ),
    "the earliest kind lets everybody use the base": Case(rule(), INITIALIZE, Proof(), "allow", **V0),
    "and no tool": Case(rule(), ADD_CALL, Proof(), "403", **V0),
    "nor anything else": Case(rule(), READ, workload(), "403", **V0),
    "in the earliest kind nothing grants nothing": Case(NOTHING, ADD_CALL, workload(), "403", **V0),
    "and no prompts": Case(NOTHING, PROMPT, workload(), "403", **V0),
    "the later kind has no base": Case(
        rule(authorization=inline("mcp: {methods: [{name: tools/call, params: [add]}]}")), LIST, workload(), "403", **V1
    ),
    "unless it says so": Case(
        rule(
            authorization=inline(
                "mcp: {mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS,"
                " methods: [{name: tools/call, params: [add]}]}"
            )
        ),
        LIST,
        workload(),
        "allow",
        **V1,
    ),
    "base alone is no tool": Case(
        rule(authorization=inline("mcp: {mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS}")),
        ADD_CALL,
        workload(),
        "403",
        **V1,
    ),
    "in the later kind nothing grants everything": Case(NOTHING, READ, workload(), "allow", **V1),
    "to its source only": Case(NOTHING, READ, workload(OTHER), "403", **V1),
    "and no rules grant nothing": Case("[]", READ, workload(), "403", **V1),
    "an inline rule may leave out the base": Case(
        rule(
            authorization=inline(
                "mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS, methods: [{name: prompts}]}"
            )
        ),
        LIST,
        workload(),
        "403",
    ),
    # Inline
    "a method": Case(rule(authorization=inline("mcp: {methods: [{name: resources/read}]}")), READ, workload(), "allow"),
    "another method": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/list}]}")), READ, workload(), "403"
    ),
    "a method that nobody knows": Case(rule(), request("x/y"), workload(), "403"),
    "a method that only a rule knows": Case(
        rule(authorization=inline("mcp: {methods: [{name: x/y}]}")), request("x/y"), workload(), "allow"
    ),
    "a method in another case": Case(
        rule(authorization=inline("mcp: {methods: [{name: tools/call}]}")), request("tools/Call"), workload(), "400"
    ),
    "a subscription": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/subscribe, params: ['file:///a']}]}")),
        request("resources/subscribe", {"uri": "file:///a", "name": "x"}),
        workload(),
        "allow",
    ),
    "the end of another subscription": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/unsubscribe, params: ['file:///a']}]}")),
        request("resources/unsubscribe", {"uri": "file:///b", "name": "file:///a"}),
        workload(),
        "403",
    ),
    "a family": Case(rule(authorization=inline("mcp: {methods: [{name: resources}]}")), READ, workload(), "allow"),
    "another family": Case(rule(authorization=inline("mcp: {methods: [{name: prompts}]}")), READ, workload(), "403"),
    "an address": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/read, params: ['file:///a']}]}")),
        READ,
        workload(),
        "allow",
    ),
    "another address": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/read, params: ['file:///b']}]}")),
        READ,
        workload(),
        "403",
    ),
    "a long tool name": Case(
        rule(authorization=inline(f"mcp: {{methods: [{{name: tools/call, params: [{'a' * 128}]}}]}}")),
        call("a" * 128),
        workload(),
        "allow",
    ),
    "an HTTP method": Case(rule(authorization=inline("methods: [POST]")), READ, workload(), "allow"),
    "another HTTP method": Case(rule(authorization=inline("methods: [GET]")), READ, workload(), "403"),
    "a path": Case(rule(authorization=inline("paths: [/mcp]")), READ, workload(), "allow"),
    "a beginning of a path": Case(rule(authorization=inline("paths: ['/m*']")), READ, workload(), "allow"),
    "another path": Case(rule(authorization=inline("paths: [/mcp2, /mc]")), READ, workload(), "403"),
    "a host": Case(rule(authorization=inline("hosts: ['*.example']")), READ, workload(), "allow"),
    "a host with a port": Case(
        rule(authorization=inline("hosts: [mcp.example]")),
        request("ping", host="MCP.example.:443"),
        workload(),
        "allow",
    ),
    "another host": Case(
        rule(authorization=inline("hosts: ['*.example']")), request("resources/list", host="example"), workload(), "403"
    ),
    "a port": Case(rule(authorization=inline("ports: [80]")), READ, workload(), "allow"),
    "another port": Case(
        rule(authorization=inline("ports: [80]")),
        request("resources/list", destination=Peer(port=81)),
        workload(),
        "403",
    ),
    "a header's value": Case(
        rule(authorization=inline("headers: [{name: X-A, value: b}]")),
        request("resources/list", headers=(("x-a", "b"),)),
        workload(),
        "allow",
    ),
    "a header with two values": Case(
        rule(authorization=inline("headers: [{name: X-A, value: b}]")),
        request("resources/list", headers=(("x-a", "b"), ("x-a", "c"))),
        workload(),
        "403",
    ),
    "no header": Case(rule(authorization=inline("headers: [{name: X-A, value: b}]")), READ, workload(), "403"),
    "all of it": Case(
        rule(authorization=inline("methods: [POST], paths: [/mcp], mcp: {methods: [{name: prompts}]}")),
        READ,
        workload(),
        "403",
    ),
    # Requests without a single meaning
    "a batch": Case(rule(), call(body=b'[{"jsonrpc":"2.0"}]'), workload(), "400"),
    "no body": Case(rule(), call(body=b""), workload(), "400"),
    "a body that is too large": Case(rule(), call("add", {"a": "x" * 70_000}), workload(), "413"),
    "a body that was cut": Case(rule(), call(headers=(("x-envoy-auth-partial-body", "true"),)), workload(), "413"),
    "two tools": Case(
        rule(),
        call(body=b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","name":"sub"}}'),
        workload(),
        "400",
    ),
    "an upgrade": Case(rule(), call(headers=(("upgrade", "websocket"),)), workload(), "400"),
    "an upgrade where nobody reads": Case(
        rule(authorization=cel(f'identity.spiffe_id == "{AGENT}"')),
        call(headers=(("upgrade", "x"),)),
        workload(),
        "400",
    ),
    "whoever may do everything has to say what": Case(
        f"{rule()[:-1]}, {rule(authorization=cel(SAME_PATH))[1:]}",
        call(body=b"[]"),
        workload(),
        "400",
    ),
    "nobody is told to come with a token first": Case(rule(OIDC), call(body=b"[]"), Proof(), "401"),
}
