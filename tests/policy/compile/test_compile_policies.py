"""Mistakes in single policies: each is found, with its path, and never opens anything."""

import pytest
from tests.support.policies.compiled import compiled, errors, warnings
from tests.support.policies.documents import ADD, BACKEND, OIDC, SPIFFE, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, external
from tests.support.policies.names import SHOP

from authplane.core.names import Ref
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import AnySource, Family, Inline, McpGrant, Method, Policy, Unusable

P = Ref("AccessPolicy", "default", "p")


def oidc(more: str = "", url: str = "https://issuer.example") -> str:
    return f"[{{source: {{type: OIDC, oidc: {{issuerUrl: '{url}'{more}}}}}, authorization: {ADD}}}]"


def inline(more: str) -> str:
    return rule(authorization=f"[{{type: Inline, {more}}}]")


def ext(text: str) -> str:
    return rule(authorization=f"[{{type: ExternalAuth, externalAuth: {text}}}]")


ONLY = "An authorization of type {} cannot have {}. Remove it."
WRONG = {
    "spiffe that is no id": (
        rule("{type: SPIFFE, spiffe: not-a-spiffe-id}"),
        "spec.rules[0].source.spiffe[0]: 'not-a-spiffe-id' is not a SPIFFE ID: ",
    ),
    "spiffe with a wildcard": (
        rule("{type: SPIFFE, spiffe: 'spiffe://td/*'}"),
        "spec.rules[0].source.spiffe[0]: 'spiffe://td/*' is not a SPIFFE ID: ",
    ),
    "spiffe with dots": (
        rule("{type: SPIFFE, spiffe: ['spiffe://td/a', 'spiffe://td/../b']}"),
        "spec.rules[0].source.spiffe[1]: 'spiffe://td/../b' is not a SPIFFE ID: ",
    ),
    "spiffe with a slash at the end": (
        rule("{type: SPIFFE, spiffe: 'spiffe://td/a/'}"),
        "spec.rules[0].source.spiffe[0]: 'spiffe://td/a/' is not a SPIFFE ID: ",
    ),
    "a trust domain that is too long": (
        rule(f"{{type: SPIFFE, spiffe: 'spiffe://{'a' * 256}/b'}}"),
        "spec.rules[0].source.spiffe[0]: 'spiffe://aaa",
    ),
    "a type without its member": (
        rule("{type: SPIFFE}"),
        "spec.rules[0].source: A source of type SPIFFE requires 'spiffe'. Add it. [InvalidSource]",
    ),
    "an empty member": (
        rule("{type: SPIFFE, spiffe: []}"),
        "spec.rules[0].source: A source of type SPIFFE requires 'spiffe'. Add it. [InvalidSource]",
    ),
    "a second member": (
        rule("{type: SPIFFE, spiffe: spiffe://td/a, serviceAccount: {name: x}}"),
        (
            "spec.rules[0].source.serviceAccount: A source of type SPIFFE cannot have 'serviceAccount'. Remove "
            "it. [InvalidSource]"
        ),
    ),
    "an account without its member": (
        rule("{type: ServiceAccount}"),
        "spec.rules[0].source: A source of type ServiceAccount requires 'serviceAccount'. Add it. [InvalidSource]",
    ),
    "oidc without its member": (
        rule("{type: OIDC}"),
        "spec.rules[0].source: A source of type OIDC requires 'oidc'. Add it. [InvalidSource]",
    ),
    "an account that cannot be": (
        rule("{type: ServiceAccount, serviceAccount: {name: A_b}}"),
        "spec.rules[0].source.serviceAccount: '/A_b' is not the name of a ServiceAccount.",
    ),
    "an http issuer": (oidc(", audiences: [a]", "http://issuer.example"), "spec.rules[0].source.oidc.issuerUrl: "),
    "an issuer with a query": (
        oidc(", audiences: [a]", "https://issuer.example?x"),
        "spec.rules[0].source.oidc.issuerUrl: ",
    ),
    "an empty audience": (
        oidc(", audiences: ['']"),
        "spec.rules[0].source.oidc.audiences: An audience is empty. Remove it. [InvalidSource]",
    ),
    "a scope with a blank": (
        oidc(", audiences: [a], scopes: ['a b']"),
        "spec.rules[0].source.oidc.scopes[0]: 'a b' is not a scope",
    ),
    "tools without tools": (
        rule(authorization="[{type: InlineTools}]"),
        "spec.rules[0].authorization[0]: The authorization of type InlineTools is empty. Add 'tools'. [Invalid]",
    ),
    "cel without an expression": (
        rule(authorization="[{type: CEL}]"),
        "spec.rules[0].authorization[0]: The authorization of type CEL is empty. Add 'cel'. [Invalid]",
    ),
    "external without a service": (
        rule(authorization="[{type: ExternalAuth}]"),
        (
            "spec.rules[0].authorization[0]: The authorization of type ExternalAuth is empty. Add "
            "'externalAuth'. [Invalid]"
        ),
    ),
    "tools with an expression": (
        rule(authorization="[{type: InlineTools, tools: [a], cel: 'true'}]"),
        f"spec.rules[0].authorization[0].cel: {ONLY.format('InlineTools', chr(39) + 'cel' + chr(39))} [Invalid]",
    ),
    "all tools beside another": (
        rule(authorization="[{type: InlineTools, tools: [add, '*']}]"),
        "spec.rules[0].authorization[0].tools[1]: '*' grants all tools and must be the only name. Remove it, or remove"
        " the other names. [Invalid]",
    ),
    "all tools in the first form beside another": (
        f"[{{source: {SPIFFE}, tools: ['*', add]}}]",
        "spec.rules[0].tools[0]: '*' grants all tools and must be the only name. Remove it, or remove",
    ),
    "tools twice": (
        f"[{{source: {SPIFFE}, tools: [a], authorization: {ADD}}}]",
        "spec.rules[0].tools: 'tools' and 'authorization' are both set. Remove one of them. [Invalid]",
    ),
    "an inline that says nothing": (
        inline("mcp: {mcpBaseProtocolMethodsOption: SKIP_BASE_PROTOCOL_METHODS}"),
        "spec.rules[0].authorization[0]: The authorization of type Inline has no condition and would grant",
    ),
    "an empty inline": (
        rule(authorization="[{type: Inline}]"),
        "spec.rules[0].authorization[0]: The authorization of type Inline is empty. Add 'headers' or 'hosts' or 'mcp'",
    ),
    "a path of a service that leads elsewhere": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, http: {path: /a/../b}}"),
        "spec.rules[0].authorization[0].externalAuth.http.path: Servers interpret '/../' in the path "
        "'/a/../b' in different ways. Use a path such as '/verify'.",
    ),
    "no header for a service": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, http: {allowedHeaders: [x-a, 'a b']}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.http.allowedHeaders[1]: 'a b' is not a header "
            "name. Use letters, digits and hyphens."
        ),
    ),
    "no header of a service": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, http: {allowedResponseHeaders: [':a']}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.http.allowedResponseHeaders[0]: ':a' is not a "
            "header name. Use letters, digits and hyphens."
        ),
    ),
    "no header for a service over gRPC": (
        ext("{protocol: GRPC, backendRef: {name: authz, port: 9000}, grpc: {allowedHeaders: ['a b']}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.grpc.allowedHeaders[0]: 'a b' is not a header "
            "name. Use letters, digits and hyphens."
        ),
    ),
    "parameters of a family": (
        inline("mcp: {methods: [{name: tools, params: [a]}]}"),
        "spec.rules[0].authorization[0].mcp.methods[0].params: 'tools' matches several methods",
    ),
    "parameters of a method that has none": (
        inline("mcp: {methods: [{name: tools/list, params: [a]}]}"),
        "spec.rules[0].authorization[0].mcp.methods[0].params: 'tools/list' has no parameter",
    ),
    "a path with a query": (inline("paths: ['/a?b']"), "spec.rules[0].authorization[0].paths[0]: '/a?b' is not a path"),
    "a host with a port": (inline("hosts: ['a:1']"), "spec.rules[0].authorization[0].hosts[0]: 'a:1' is not a host"),
    "a method in lower case": (
        inline("methods: [get]"),
        "spec.rules[0].authorization[0].methods[0]: 'get' is not an HTTP method",
    ),
    "a header that is none": (
        inline("headers: [{name: 'a b', value: x}]"),
        "spec.rules[0].authorization[0].headers[0].name: 'a b' is not a header name. Use letters, digits and hyphens.",
    ),
    "an expression that cannot be parsed": (
        rule(authorization="[{type: CEL, cel: '1 +'}]"),
        "spec.rules[0].authorization[0].cel: At column ",
    ),
    "an unknown variable": (
        rule(authorization="[{type: CEL, cel: 'foo.bar'}]"),
        "spec.rules[0].authorization[0].cel: At column 4 of the expression: ",
    ),
    "the body": (
        rule(authorization="""[{type: CEL, cel: 'request.body["tool-name"] == "a"'}]"""),
        "spec.rules[0].authorization[0].cel: At column 8 of the expression: ",
    ),
    "an expression that is no bool": (
        rule(authorization="[{type: CEL, cel: 'request.path'}]"),
        "spec.rules[0].authorization[0].cel: At column ",
    ),
    "an expression that costs too much": (
        rule(OIDC, "[{type: CEL, cel: 'identity.a.all(a, identity.a.all(b, identity.a.all(c, a + b == c)))'}]"),
        "spec.rules[0].authorization[0].cel: At column ",
    ),
    "two rules of a name": (
        f"[{{name: a, source: {SPIFFE}, authorization: {ADD}}}, {{name: a, source: {SPIFFE}, authorization: {ADD}}}]",
        "spec.rules[1].name: Another rule has the name 'a'. Rename one of them. [Invalid]",
    ),
    "no port": (
        ext("{protocol: GRPC, backendRef: {name: authz}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.backendRef: The reference has no 'port'. Add the "
            "port of the Service."
        ),
    ),
    "another kind of service": (
        ext("{protocol: GRPC, backendRef: {name: authz, kind: Pod, port: 1}}"),
        "spec.rules[0].authorization[0].externalAuth.backendRef: A ",
    ),
    "http settings for grpc": (
        ext("{protocol: GRPC, backendRef: {name: authz, port: 9000}, http: {path: /a}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.http: 'http' applies only to protocol HTTP. Remove "
            "it, or set protocol: HTTP."
        ),
    ),
    "grpc settings for http": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, grpc: {allowedHeaders: [a]}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.grpc: 'grpc' applies only to protocol GRPC. Remove "
            "it, or set protocol: GRPC."
        ),
    ),
    "a path with steps": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, http: {path: /a/../b}}"),
        "spec.rules[0].authorization[0].externalAuth.http.path: Servers interpret '/../' in the path "
        "'/a/../b' in different ways. Use a path such as '/verify'.",
    ),
    "a path with odd characters": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, http: {path: '/a b'}}"),
        "spec.rules[0].authorization[0].externalAuth.http.path: The path '/a b' has a character that is not "
        "valid in a URL path. Use a path such as '/verify'.",
    ),
    "an allowed header that is none": (
        ext("{protocol: HTTP, backendRef: {name: authz, port: 9000}, http: {allowedHeaders: ['a:b']}}"),
        (
            "spec.rules[0].authorization[0].externalAuth.http.allowedHeaders[0]: 'a:b' is not a header "
            "name. Use letters, digits and hyphens."
        ),
    ),
}


@pytest.mark.requirement("R6", "R7", "R8", "R12", "R54", "R60", "R63", "S1", "S17")
@pytest.mark.parametrize(("rules", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_policy_with_a_mistake_says_where_and_denies_its_target(rules: str, message: str) -> None:
    made = compiled(BACKEND, SERVICES, policy(rules))
    found = errors(made)
    assert len(found) == 1
    assert found[0].startswith(message)
    assert [type(each) for each in made.policies.attachments[PolicyTarget(SHOP)].policies] == [Unusable]
    [standing] = made.standings[P].targets
    assert (standing.accepted, standing.reason) == (False, made.problems[P][-1].reason)


def test_every_problem_is_found_in_one_pass() -> None:
    made = compiled(
        BACKEND,
        policy(
            "[{source: {type: SPIFFE, spiffe: x}, authorization: [{type: CEL, cel: 'a'}, {type: InlineTools}]},"
            f" {{source: {{type: OIDC}}, authorization: {ADD}}}]",
            targets="[{kind: Pod, name: a}, {kind: Backend, name: shop}]",
        ),
    )
    assert [each.partition(": ")[0] for each in errors(made)] == [
        "spec.targetRefs[0]",
        "spec.rules[0].source.spiffe[0]",
        "spec.rules[0].authorization[0].cel",
        "spec.rules[0].authorization[1]",
        "spec.rules[1].source",
    ]


# --- What is said, and does not keep a policy from being used


SOFT = {
    "no scheme": (
        oidc(", audiences: [a]", "issuer.example"),
        "spec.rules[0].source.oidc.issuerUrl: 'issuer.example' has no scheme and is read as",
    ),
    "no audiences": (
        oidc(),
        "spec.rules[0].source.oidc.audiences: Without audiences, the policy accepts tokens",
    ),
    "nothing is granted": (
        f"[{{source: {SPIFFE}}}]",
        "spec.rules[0]: The rule has no 'authorization', so it grants nothing. Add 'authorization'. [GrantsNothing]",
    ),
    "no rules": (
        "[]",
        "spec.rules: The policy has no rules, so it denies all requests. Add a rule. [GrantsNothing]",
    ),
    "a trust domain alone": (
        rule("{type: SPIFFE, spiffe: 'spiffe://td'}"),
        "spec.rules[0].source.spiffe[0]: 'spiffe://td' has no path",
    ),
    "a pattern of tools": (
        rule(authorization="[{type: InlineTools, tools: [add, 'get_*']}]"),
        "spec.rules[0].authorization[0].tools[1]: 'get_*' is not a pattern: it grants only a tool with exactly this"
        " name. List each tool, or use a CEL expression on request.mcp.tool_name. [ToolNotPattern]",
    ),
    "negation only": (
        rule(authorization="""[{type: CEL, cel: '!(request.path == "/a")'}]"""),
        "spec.rules[0].authorization[0].cel: At column 1 of the expression: The expression only excludes values",
    ),
    "an upper-case header": (
        rule(authorization="""[{type: CEL, cel: '"X-Foo" in request.headers && request.headers["X-Foo"] == "a"'}]"""),
        "spec.rules[0].authorization[0].cel: At column ",
    ),
}


@pytest.mark.requirement("S18", "S19", "I2")
@pytest.mark.parametrize(("rules", "message"), SOFT.values(), ids=SOFT.keys())
def test_a_warning_leaves_the_policy_in_force(rules: str, message: str) -> None:
    made = compiled(BACKEND, policy(rules))
    assert errors(made) == []
    assert any(each.startswith(message) for each in warnings(made))
    assert made.standings[P].targets[0].accepted


EXTRA = {
    "tools": "tools: [a]",
    "externalAuth": f"externalAuth: {external()}",
    "mcp": "mcp: {methods: [{name: tools/call}]}",
    "methods": "methods: [GET]",
    "paths": "paths: [/a]",
    "headers": "headers: [{name: a, value: b}]",
    "hosts": "hosts: [a.example]",
    "ports": "ports: [80]",
}


@pytest.mark.parametrize(("name", "member"), EXTRA.items(), ids=EXTRA.keys())
def test_an_entry_with_a_member_of_another_type_is_refused(name: str, member: str) -> None:
    entry = f"[{{type: CEL, cel: 'request.path == \"/a\"', {member}}}]"
    made = compiled(BACKEND, SERVICES, policy(rule(authorization=entry)))
    said = (
        f"spec.rules[0].authorization[0].{name}: An authorization of type CEL cannot have {name!r}. Remove it. "
        "[Invalid]"
    )
    assert said in [str(each) for each in made.problems[P]]
    assert isinstance(made.policies.attachments[PolicyTarget(SHOP)].policies[0], Unusable)


WIDER = {
    "always true": "true || request.path == '/a'",
    "an error that a decision absorbs": "identity.a == 1 || request.path == '/a'",
    "a pattern without ends": "request.path.matches('a')",
    "all of what may be empty": "identity.groups.all(each, each == 'a')",
}


@pytest.mark.parametrize("text", WIDER.values(), ids=WIDER.keys())
def test_expressions_that_may_grant_too_much_are_rejected_under_strict(text: str) -> None:
    held = policy(rule(OIDC, authorization=f"""[{{type: CEL, cel: "{text}"}}]"""))
    assert errors(compiled(BACKEND, held)) == []
    assert len(errors(compiled(BACKEND, settings("{strict: true}"), held))) == 1


@pytest.mark.parametrize("name", ["no audiences", "negation only"])
def test_what_may_be_wider_than_meant_is_refused_under_strict(name: str) -> None:
    made = compiled(BACKEND, settings("{strict: true}"), policy(SOFT[name][0]))
    assert [each.startswith(SOFT[name][1]) for each in errors(made)] == [True]
    assert isinstance(made.policies.attachments[PolicyTarget(SHOP)].policies[0], Unusable)


UNREADABLE = {
    "no type": rule("{spiffe: spiffe://td/a}"),
    "another type": rule("{type: IP, spiffe: spiffe://td/a}"),
    "no issuer": rule("{type: OIDC, oidc: {audiences: [a]}}"),
    "no name": rule("{type: ServiceAccount, serviceAccount: {namespace: a}}"),
    "another authorization": rule(authorization="[{type: Regex, tools: [a]}]"),
    "another protocol": ext("{protocol: TCP, backendRef: {name: authz, port: 9000}}"),
    "no service": ext("{protocol: GRPC}"),
    "no rules": "null",
    "an id that is too long": rule(f"{{type: SPIFFE, spiffe: 'spiffe://td/{'a' * 2048}'}}"),
    "eleven targets": "[]\n  targetRefs: [" + ", ".join(["{kind: Backend, name: shop}"] * 11) + "]",
}


@pytest.mark.requirement("R4", "R6", "R7", "R8", "R14", "R60", "I3")
@pytest.mark.parametrize("rules", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_policy_that_its_kind_refuses_denies_its_target(rules: str) -> None:
    text = policy(rules)
    if "targetRefs" in rules:
        text = text.replace("  targetRefs: [{kind: Backend, name: shop}]\n", "", 1)
    made = compiled(BACKEND, SERVICES, text)
    assert [type(each) for each in made.policies.attachments[PolicyTarget(SHOP)].policies] == [Unusable]


@pytest.mark.requirement("I3", "T09")
def test_a_rule_without_source_is_for_everybody() -> None:
    made = compiled(BACKEND, policy(anybody(ADD)))
    [held] = made.policies.attachments[PolicyTarget(SHOP)].policies
    assert isinstance(held, Policy)
    assert held.rules[0].source == AnySource()


@pytest.mark.requirement("I16")
def test_rules_without_a_name_get_one_that_no_other_has() -> None:
    made = compiled(BACKEND, policy(f"[{{source: {SPIFFE}}}, {{name: rule-0}}, {{source: {SPIFFE}}}]"))
    assert made.standings[P].rules == ("rule-0-unnamed", "rule-0", "rule-2")


ABOUT = (
    "tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe",
    "completion/complete", "tasks/get", "tasks/result", "tasks/cancel", "tasks/update",
)  # fmt: skip
FAMILIES = ("tools", "prompts", "resources", "tasks", "completion", "logging", "notifications")


@pytest.mark.parametrize("method", ABOUT)
def test_parameters_name_what_a_method_is_about(method: str) -> None:
    made = compiled(
        BACKEND, policy(inline(f"mcp: {{methods: [{{name: {method}, params: [a, b]}}]}}"), kind="XAccessPolicy")
    )
    assert errors(made) == []
    [held] = made.policies.attachments[PolicyTarget(SHOP)].policies
    assert isinstance(held, Policy)
    assert held.rules[0].entries == (Inline(mcp=McpGrant(methods=(Method(method, frozenset({"a", "b"})),))),)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_means_all_its_methods_and_nothing_else(family: str) -> None:
    made = compiled(BACKEND, policy(inline(f"mcp: {{methods: [{{name: {family}}}]}}"), kind="XAccessPolicy"))
    [held] = made.policies.attachments[PolicyTarget(SHOP)].policies
    assert isinstance(held, Policy)
    assert held.rules[0].entries == (Inline(mcp=McpGrant(methods=(Family(f"{family}/"),))),)
    named = compiled(
        BACKEND, policy(inline(f"mcp: {{methods: [{{name: {family}, params: [a]}}]}}"), kind="XAccessPolicy")
    )
    assert [each.partition(":")[0] for each in errors(named)] == [
        "spec.rules[0].authorization[0].mcp.methods[0].params"
    ]


def test_a_trust_domain_without_a_workload_is_reported_to_match_no_sender() -> None:
    made = compiled(BACKEND, policy(rule("{type: SPIFFE, spiffe: ['spiffe://td/a', 'spiffe://td']}")))
    said = (
        "spec.rules[0].source.spiffe[1]: 'spiffe://td' has no path, so no workload can have this ID. Add "
        "the path of a workload."
    )
    assert (errors(made), warnings(made)) == ([], [f"{said} [SourceNeverMatches]"])
