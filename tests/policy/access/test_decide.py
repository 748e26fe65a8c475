"""Who may do what: rules, sources and entries."""

from typing import Any, NamedTuple

import pytest
from tests.policy.access.world import (
    ADD,
    ADD_CALL,
    AGENT,
    BACKEND,
    GATEWAY,
    INITIALIZE,
    ISSUER,
    LIST,
    NOW,
    OIDC,
    OTHER,
    SCOPED,
    SERVICES,
    SPIFFE,
    THROUGH_EDGE,
    TO_SHOP,
    Granted,
    Proof,
    Services,
    anybody,
    asks,
    bearer,
    call,
    external,
    judge,
    policies,
    policy,
    request,
    rule,
    settings,
    token,
    word,
    workload,
)

from authplane.base.names import Ref
from authplane.policy.access.guards import NO_POLICIES, Target
from authplane.policy.access.verdict import Grounds
from authplane.policy.decision import Allow, Deny, Unavailable
from authplane.policy.peers.service_account import ServiceAccount
from authplane.policy.request import Peer, Request
from authplane.policy.tokens.outcome import Reason, Refused

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
NOTHING = f"[{{source: {SPIFFE}}}]"
ACCOUNT = "{type: ServiceAccount, serviceAccount: {name: agent}}"

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
    "the first form of rules": Case(f"[{{source: {SPIFFE}, tools: [add]}}]", ADD_CALL, workload(), "allow"),
    # Nothing granted
    "no authorization": Case(NOTHING, ADD_CALL, workload(), "403"),
    "no authorization, base": Case(NOTHING, LIST, workload(), "403"),
    "an empty list": Case(rule(authorization="[]"), ADD_CALL, workload(), "403"),
    "an empty object": Case(rule(authorization="{}"), ADD_CALL, workload(), "403"),
    "an empty list of tools": Case(rule(authorization="[{type: InlineTools, tools: []}]"), LIST, workload(), "403"),
    "another rule grants": Case(f"{NOTHING[:-1]}, {rule()[1:]}", ADD_CALL, workload(), "allow"),
    "no rules": Case("[]", ADD_CALL, workload(), "403"),
    "one object for a list": Case(rule(authorization="{type: InlineTools, tools: [add]}"), ADD_CALL, workload(), "allow"),
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
    "an argument that is not there": Case(rule(authorization=cel("request.mcp.params.a > 3.0")), ADD_CALL, workload(), "403"),
    "a claim": Case(rule(OIDC, cel('identity.group == "admin"')), ADD_CALL, bearer(group="admin"), "allow"),
    "a claim that is not there": Case(rule(OIDC, cel('identity.group == "admin"')), ADD_CALL, bearer(), "403"),
    "a negation of what is not there": Case(rule(OIDC, cel('!(identity.role == "blocked")')), ADD_CALL, bearer(), "403"),
    "an audience in a list": Case(rule(OIDC, cel('"shop" in identity.aud')), ADD_CALL, bearer(aud=["shop"]), "allow"),
    "in a text": Case(rule(OIDC, cel('"shop" in identity.aud')), ADD_CALL, bearer(), "403"),
    "a text against a list": Case(rule(OIDC, cel('identity.aud == "shop"')), ADD_CALL, bearer(aud=["shop"]), "403"),
    "the id of a workload": Case(rule(authorization=cel(f'identity.spiffe_id == "{AGENT}"')), ADD_CALL, workload(), "allow"),
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
                "mcp: {mcpBaseProtocolMethodsOption: MATCH_BASE_PROTOCOL_METHODS, methods: [{name: tools/call, params: [add]}]}"
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
        rule(authorization=inline("mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS, methods: [{name: prompts}]}")),
        LIST,
        workload(),
        "403",
    ),
    # Inline
    "a method": Case(rule(authorization=inline("mcp: {methods: [{name: resources/read}]}")), READ, workload(), "allow"),
    "another method": Case(rule(authorization=inline("mcp: {methods: [{name: resources/list}]}")), READ, workload(), "403"),
    "a family": Case(rule(authorization=inline("mcp: {methods: [{name: resources}]}")), READ, workload(), "allow"),
    "another family": Case(rule(authorization=inline("mcp: {methods: [{name: prompts}]}")), READ, workload(), "403"),
    "an address": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/read, params: ['file:///a']}]}")), READ, workload(), "allow"
    ),
    "another address": Case(
        rule(authorization=inline("mcp: {methods: [{name: resources/read, params: ['file:///b']}]}")), READ, workload(), "403"
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
        rule(authorization=inline("hosts: [mcp.example]")), request("ping", host="MCP.example.:443"), workload(), "allow"
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
        rule(authorization=inline("methods: [POST], paths: [/mcp], mcp: {methods: [{name: prompts}]}")), READ, workload(), "403"
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
        rule(authorization=cel(f'identity.spiffe_id == "{AGENT}"')), call(headers=(("upgrade", "x"),)), workload(), "400"
    ),
    "whoever may do everything has to say what": Case(
        f"{rule()[:-1]}, {rule(authorization=cel('request.path == chr'.replace('chr', chr(34) + '/mcp' + chr(34))))[1:]}",
        call(body=b"[]"),
        workload(),
        "400",
    ),
    "nobody is told to come with a token first": Case(rule(OIDC), call(body=b"[]"), Proof(), "401"),
}  # fmt: skip


@pytest.mark.requirement(
    "R13", "R15", "R16", "R20", "R23", "R24", "R25", "R26", "R28", "R29", "R31", "R32", "R33", "R34", "R50", "R51", "R53",
    "R55", "I3", "I4", "I5", "I7", "I14", "I15", "I18", "I19", "I20", "K05", "M03", "M15", "M18", "S9", "T08", "C16",
)  # fmt: skip
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_decisions(case: Case) -> None:
    made = policies(BACKEND, policy(case.rules, kind=case.kind, version=case.version))
    assert word(judge(made, case.asked, case.proof)) == case.want


def test_a_token_is_looked_at_only_if_a_rule_needs_it() -> None:
    proof = workload()
    judge(policies(BACKEND, policy(f"{rule()[:-1]}, {rule(OIDC)[1:]}")), ADD_CALL, proof)
    assert proof.looked == 0


@pytest.mark.requirement("R24", "C16")
def test_each_rule_takes_the_identity_from_its_own_source() -> None:
    both = Proof(ids=(AGENT,), shown=token(group="admin", spiffe_id="spiffe://evil/x"))
    rules = "[{{source: {}, authorization: [{{type: CEL, cel: '{}'}}]}}]"
    id_of_claim = rules.format(SPIFFE, 'identity.spiffe_id == "spiffe://evil/x"')
    assert word(judge(policies(BACKEND, policy(id_of_claim)), ADD_CALL, both)) == "403"
    group_of_workload = rules.format(SPIFFE, 'identity.group == "admin"')
    assert word(judge(policies(BACKEND, policy(group_of_workload)), ADD_CALL, both)) == "403"
    group_of_token = rules.format(OIDC, 'identity.group == "admin"')
    assert word(judge(policies(BACKEND, policy(group_of_token)), ADD_CALL, both)) == "allow"


# --- What is allowed goes on without what was only for us


@pytest.mark.requirement("S20", "S21", "A5")
def test_the_clients_token_and_its_words_about_itself_go_no_further() -> None:
    asked = call(headers=(("x-forwarded-client-cert", "URI=spiffe://td/admin"), ("x-remote_user", "root")))
    verdict = judge(policies(BACKEND, policy(rule(OIDC))), asked, bearer())
    assert isinstance(verdict.decision, Allow)
    edits = verdict.decision.edits
    assert edits.set == ()
    assert {"authorization", "x-forwarded-client-cert", "x_forwarded_client_cert", "x-remote_user"} <= set(edits.remove)


def test_a_header_that_no_rule_looks_at_is_left_alone() -> None:
    verdict = judge(policies(BACKEND, policy(rule())), ADD_CALL, workload())
    assert isinstance(verdict.decision, Allow)
    assert "authorization" not in verdict.decision.edits.remove


# --- What the log says


def test_the_grounds_of_a_decision_name_policy_rule_entry_identity_method_and_tool() -> None:
    made = policies(BACKEND, policy(f"[{{name: agents, source: {SPIFFE}, authorization: {ADD}}}]"))
    name = "AccessPolicy/default/p"
    assert judge(made, ADD_CALL, workload()).grounds == Grounds(
        name, "agents", "0:InlineTools", AGENT, "tools/call", "add", "granted"
    )
    assert judge(made, call("sub"), workload()).grounds == Grounds(
        name, "agents", "0:InlineTools", AGENT, "tools/call", "sub", "tool_not_listed"
    )
    assert judge(made, LIST, workload()).grounds == Grounds(
        name, "agents", "base_protocol", AGENT, "tools/list", "", "base_protocol"
    )
    assert judge(made, READ, Proof()).grounds == Grounds(name, "", "", "", "resources/read", "", "no_peer_identity")


@pytest.mark.requirement("S16")
def test_an_expression_that_fails_is_named_so_that_it_can_be_counted() -> None:
    made = policies(BACKEND, policy(rule(OIDC, cel('identity.group == "admin"'))))
    verdict = judge(made, ADD_CALL, bearer(secret="hush"))
    assert verdict.grounds == Grounds(
        "AccessPolicy/default/p",
        "rule-0",
        "0:CEL",
        f"{ISSUER}#alice",
        "tools/call",
        "add",
        "cel_error:no_such_key",
        ("AccessPolicy/default/p rule-0 0:CEL no_such_key",),
    )
    assert "hush" not in repr(verdict)


def test_a_bad_token_is_named_in_the_log_and_not_to_the_client() -> None:
    verdict = judge(policies(BACKEND, policy(rule(OIDC))), ADD_CALL, Proof(shown=Refused(reason=Reason.EXPIRED)))
    assert verdict.grounds.reason == "bad_token:token_expired"
    assert isinstance(verdict.decision, Deny)
    assert "expired" not in repr((verdict.decision.headers, verdict.decision.body))


# --- Targets


@pytest.mark.requirement("R30")
def test_what_nobody_protects_is_open_unless_a_setting_says_otherwise() -> None:
    open_, shut = policies(BACKEND, GATEWAY), policies(BACKEND, GATEWAY, settings("{unprotectedBackends: Deny}"))
    for target in (TO_SHOP, THROUGH_EDGE):
        assert word(judge(open_, target=target)) == "allow"
        assert word(judge(shut, target=target)) == "403"


UNKNOWN = {
    "no such backend": Target(backend=Ref("Backend", "default", "gone")),
    "the backend of another kind": Target(backend=Ref("XBackend", "default", "shop")),
    "no such gateway": Target(backend=Ref("Backend", "default", "shop"), gateway=Ref("Gateway", "default", "gone")),
    "no such listener": Target(gateway=Ref("Gateway", "default", "edge"), section="gone"),
    "nowhere": Target(),
}


@pytest.mark.parametrize("target", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_nothing_is_known_of_a_target_that_is_not_known(target: Target) -> None:
    verdict = judge(policies(BACKEND, GATEWAY), target=target)
    assert verdict.decision == Unavailable(cause="the target of the request is not known")


def test_before_the_first_policies_nothing_is_known() -> None:
    assert word(judge(NO_POLICIES)) == "unavailable"


def test_on_the_way_to_something_else_than_an_mcp_server_no_tool_is_granted() -> None:
    made = policies(GATEWAY, policy(rule(), targets="[{kind: Gateway, name: edge}]"))
    gateway = Target(gateway=Ref("Gateway", "default", "edge"))
    verdict = judge(made, ADD_CALL, workload(), target=gateway)
    assert (word(verdict), verdict.grounds.reason) == ("403", "not_an_mcp_request")
    expression = policy(
        rule(authorization=cel('request.mcp.method == "tools/call"')), targets="[{kind: Gateway, name: edge}]"
    )
    assert word(judge(policies(GATEWAY, expression), ADD_CALL, workload(), target=gateway)) == "403"


# --- External services


@pytest.mark.requirement("R6B")
@pytest.mark.parametrize("asked", [ADD_CALL, INITIALIZE, READ], ids=["a tool", "base", "a resource"])
def test_a_service_that_is_asked_about_everybody_is_asked_about_everything(asked: Request) -> None:
    made = policies(BACKEND, SERVICES, policy(anybody(f"[{asks()}]")))
    services = Services(authz=Granted())
    assert word(judge(made, asked, Proof(), services)) == "allow"
    assert services.names == ["authz"]
    assert word(judge(made, asked, Proof(), Services())) == "unavailable"


def test_a_screen_of_the_later_kind_is_asked_about_all_whom_it_selects() -> None:
    action = f"  action: ExternalAuth\n  externalAuth: {external()}"
    made = policies(BACKEND, SERVICES, policy(f"[{{source: {SPIFFE}}}]", kind="XAccessPolicy", more=action))
    services = Services(authz=Granted())
    assert word(judge(made, ADD_CALL, workload(OTHER), services)) == "allow"
    assert services.names == []
    assert word(judge(made, ADD_CALL, workload(), services)) == "allow"
    assert services.names == ["authz"]
    [ask] = services.asked
    assert ask.deadline == NOW.timestamp() + 5
