"""All policies together: targets, references, limits, age, and one generation after another."""

from typing import NamedTuple

import pytest
from tests.support.policies.compiled import compiled, errors, warnings
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.names import EDGE, SHOP

from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import PolicyCompiler, compile_policies
from authplane.policy.rules.access_settings import Options
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import Unusable
from authplane.sources.document_versions import Library

P = Ref("AccessPolicy", "default", "p")


def oidc(more: str = "", url: str = "https://issuer.example") -> str:
    return f"[{{source: {{type: OIDC, oidc: {{issuerUrl: '{url}'{more}}}}}, authorization: {ADD}}}]"


def inline(more: str) -> str:
    return rule(authorization=f"[{{type: Inline, {more}}}]")


def ext(text: str) -> str:
    return rule(authorization=f"[{{type: ExternalAuth, externalAuth: {text}}}]")


class Targets(NamedTuple):
    targets: str
    problem: str
    denied: tuple[Ref, ...]


TARGETS = {
    "another kind": Targets(
        "[{kind: Service, name: shop}]",
        "spec.targetRefs[0]: A policy cannot protect a 'Service'. Use Backend or Gateway. [UnsupportedTarget]",
        (),
    ),
    "another group": Targets(
        "[{group: apps, kind: Backend, name: shop}]",
        "spec.targetRefs[0]: A policy cannot protect a 'Backend' of 'apps'. Use Backend or Gateway. "
        "[UnsupportedTarget]",
        (SHOP,),
    ),
    "a kind in lower case": Targets(
        "[{kind: backend, name: shop}]",
        "spec.targetRefs[0]: A policy cannot protect a 'backend'. Use Backend or Gateway. [UnsupportedTarget]",
        (SHOP,),
    ),
    "a kind in the plural": Targets(
        "[{kind: Gateways, name: edge}]",
        "spec.targetRefs[0]: A policy cannot protect a 'Gateways'. Use Backend or Gateway. [UnsupportedTarget]",
        (EDGE,),
    ),
    "another kind with the name of a Gateway": Targets(
        "[{kind: Service, name: edge}]",
        "spec.targetRefs[0]: A policy cannot protect a 'Service'. Use Backend or Gateway. [UnsupportedTarget]",
        (),
    ),
    "another kind besides": Targets(
        "[{kind: Backend, name: shop}, {kind: Backend, group: apps, name: x}]",
        "spec.targetRefs[1]: A policy cannot protect a 'Backend' of 'apps'. Use Backend or Gateway. "
        "[UnsupportedTarget]",
        (SHOP,),
    ),
    "two kinds": Targets(
        "[{kind: Backend, name: shop}, {kind: Gateway, name: edge}]",
        "spec.targetRefs: The targets have different kinds. Split the policy, so that each policy has targets of one "
        "kind. [Invalid]",
        (SHOP, EDGE),
    ),
    "a section of a backend": Targets(
        "[{kind: Backend, name: shop, sectionName: web}]",
        "spec.targetRefs[0].sectionName: sectionName applies only to a Gateway. Remove sectionName. [Invalid]",
        (SHOP,),
    ),
}


@pytest.mark.requirement("R3", "R4", "I12")
@pytest.mark.parametrize("case", TARGETS.values(), ids=TARGETS.keys())
def test_what_no_policy_can_protect_is_refused_and_the_rest_denies(case: Targets) -> None:
    made = compiled(BACKEND, GATEWAY, policy(rule(), targets=case.targets))
    assert errors(made) == [case.problem]
    denied = tuple(
        aim.ref for aim, attachment in made.policies.attachments.items() if not aim.section and attachment.policies
    )
    assert denied == case.denied


@pytest.mark.requirement("R2", "I11")
@pytest.mark.parametrize("group", ["", "group: agentic.networking.x-k8s.io, ", "group: agentic.prototype.x-k8s.io, "])
def test_a_target_is_of_the_policys_own_namespace_and_its_group_follows_from_its_kind(group: str) -> None:
    elsewhere = BACKEND.replace("{name: shop}", "{name: shop, namespace: other}")
    made = compiled(BACKEND, elsewhere, policy(rule(), targets=f"[{{{group}kind: Backend, name: shop}}]"))
    assert errors(made) == []
    assert [aim for aim, attachment in made.policies.attachments.items() if attachment.policies] == [PolicyTarget(SHOP)]


@pytest.mark.requirement("I10")
@pytest.mark.parametrize(("type_", "known"), [("", 1), ("type: MCP, ", 1), ("type: A2A, ", 0)])
def test_a_backend_is_an_mcp_server_or_none(type_: str, known: int) -> None:
    attachments = compiled(BACKEND.replace("type: MCP, ", type_)).policies.attachments
    assert [aim.ref.kind for aim in attachments].count("Backend") == known


@pytest.mark.requirement("I11", "R73", "T09")
def test_a_policy_without_targets_is_inert_and_says_so() -> None:
    made = compiled(BACKEND, policy(rule(), targets="[]"))
    assert (errors(made), warnings(made)) == (
        [],
        ["spec.targetRefs: The policy has no targets, so it protects nothing. Add a target. [NoTargets]"],
    )
    assert made.standings[P].targets == ()
    assert made.policies.attachments[PolicyTarget(SHOP)].policies == ()


def test_a_target_that_is_not_there_is_said_and_the_others_are_protected() -> None:
    made = compiled(BACKEND, policy(rule(), targets="[{kind: Backend, name: gone}, {kind: Backend, name: shop}]"))
    assert [(each.accepted, each.reason, each.message) for each in made.standings[P].targets] == [
        (False, "TargetNotFound", "Backend default/gone not found. Add it, or correct the name."),
        (True, "Accepted", "The policy is enforced."),
    ]
    assert (errors(made), warnings(made)) == ([], [])


@pytest.mark.requirement("R4", "I12")
def test_a_listener_has_the_policies_of_its_gateway_and_its_own_by_age() -> None:
    whole, part = "[{kind: Gateway, name: edge}]", "[{kind: Gateway, name: edge, sectionName: admin}]"
    made = compiled(
        GATEWAY,
        policy(rule(), name="b", targets=whole, created="2026-01-02T00:00:00Z"),
        policy(rule(), name="a", targets=part, created="2026-01-01T00:00:00Z"),
        policy(rule(), name="c", targets=part),
    )
    names = {
        str(aim): [each.ref.name for each in attachment.policies]
        for aim, attachment in made.policies.attachments.items()
    }
    assert names == {
        "Gateway/default/edge": ["b"],
        "Gateway/default/edge/web": ["b"],
        "Gateway/default/edge/admin": ["a", "b", "c"],
    }


def test_the_default_gateway_can_be_protected() -> None:
    targets = "[{kind: Gateway, name: authplane}]"
    made = compiled(BACKEND, policy(rule(), targets=targets))
    assert [str(aim) for aim, attachment in made.policies.attachments.items() if attachment.policies] == [
        "Gateway/default/authplane",
        "Gateway/default/authplane/default",
    ]
    written = compiled(BACKEND, GATEWAY, policy(rule(), targets=targets))
    assert written.standings[P].targets[0].reason == "TargetNotFound"


def test_a_listener_that_is_not_there_makes_its_whole_gateway_deny() -> None:
    made = compiled(GATEWAY, policy(rule(), targets="[{kind: Gateway, name: edge, sectionName: amdin}]"))
    assert {type(each) for attachment in made.policies.attachments.values() for each in attachment.policies} == {
        Unusable
    }
    assert len(made.policies.attachments) == 3
    assert [each.message for each in made.standings[P].targets] == [
        "Gateway default/edge has no listener 'amdin', so authplane denies all requests to the Gateway. Add the "
        "listener, or correct sectionName."
    ]


# --- References


GRANT = """
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: g, namespace: infra}
spec:
  from: [{group: agentic.networking.x-k8s.io, kind: AccessPolicy, namespace: default}]
  to: [{group: "", kind: Service, name: authz}]
"""
ELSEWHERE = SERVICES.replace("{name: authz}", "{name: authz, namespace: infra}")
AWAY = ext("{protocol: GRPC, backendRef: {name: authz, namespace: infra, port: 9000}}")
WHERE = "spec.rules[0].authorization[0].externalAuth.backendRef: "
BESIDE = rule(authorization=f"[{ADD[1:-1]}, {{type: ExternalAuth, externalAuth: {external()}}}]")
AWAY_BESIDE = BESIDE.replace("{name: authz, ", "{name: authz, namespace: infra, ")
WHERE_BESIDE = WHERE.replace("authorization[0]", "authorization[1]")
REFERENCES = {
    "there, beside another entry": ((SERVICES,), BESIDE, ()),
    "not there, beside another entry": (
        (),
        BESIDE,
        (f'{WHERE_BESIDE}Service "default/authz" not found. Create it, or correct the reference. [BackendNotFound]',),
    ),
    "elsewhere, beside another entry": (
        (ELSEWHERE,),
        AWAY_BESIDE,
        (
            f'{WHERE_BESIDE}No ReferenceGrant allows AccessPolicy "default/p" to refer to Service "infra/authz". '
            "Add one in namespace 'infra'. [RefNotPermitted]",
        ),
    ),
    "elsewhere with a grant, beside another entry": ((ELSEWHERE, GRANT), AWAY_BESIDE, ()),
    "there": ((SERVICES,), ext(external()), ()),
    "not readable": (
        ("apiVersion: v1\nkind: Service\nmetadata: {name: authz}\nspec: {ports: [{port: x}]}",),
        ext(external()),
        (f'{WHERE}Service "default/authz" cannot be read. Correct the document. [BackendNotFound]',),
    ),
    "not there": (
        (),
        ext(external()),
        (f'{WHERE}Service "default/authz" not found. Create it, or correct the reference. [BackendNotFound]',),
    ),
    "another port": (
        (SERVICES.replace("9000", "9001"),),
        ext(external()),
        (f'{WHERE}Service "default/authz" has no TCP port 9000. Use one of its ports. [BackendNotFound]',),
    ),
    "elsewhere": (
        (ELSEWHERE,),
        AWAY,
        (
            f'{WHERE}No ReferenceGrant allows AccessPolicy "default/p" to refer to Service "infra/authz". '
            "Add one in namespace 'infra'. [RefNotPermitted]",
        ),
    ),
    "elsewhere with a grant": ((ELSEWHERE, GRANT), AWAY, ()),
    "with a grant for another kind": (
        (ELSEWHERE, GRANT.replace("kind: AccessPolicy", "kind: XAccessPolicy")),
        AWAY,
        (
            f'{WHERE}No ReferenceGrant allows AccessPolicy "default/p" to refer to Service "infra/authz". '
            "Add one in namespace 'infra'. [RefNotPermitted]",
        ),
    ),
    "outside the cluster": (
        (SERVICES.replace("spec: {", "spec: {type: ExternalName, externalName: localhost, "),),
        ext(external()),
        (
            f'{WHERE}Service "default/authz" has type "ExternalName", which an external service cannot have. Use a '
            "Service with endpoints. [BackendNotFound]",
        ),
    ),
}


@pytest.mark.requirement("R68")
@pytest.mark.parametrize(("documents", "rules", "problems"), REFERENCES.values(), ids=REFERENCES.keys())
def test_a_service_must_be_there_and_let_itself_be_referred_to(
    documents: tuple[str, ...], rules: str, problems: tuple[str, ...]
) -> None:
    made = compiled(BACKEND, *documents, policy(rules))
    assert tuple(errors(made)) == problems
    standing = made.standings[P]
    assert standing.targets[0].accepted
    assert tuple(str(each) for each in standing.unresolved) == problems


# --- Limits and age


@pytest.mark.requirement("R44")
def test_the_sixth_policy_of_a_target_is_one_too_many_everywhere_and_denies() -> None:
    another = BACKEND.replace("{name: shop}", "{name: cafe}")
    both = "[{kind: Backend, name: shop}, {kind: Backend, name: cafe}]"
    old = [policy(rule(), name=f"p{index}", created=f"2026-01-0{index}T00:00:00Z") for index in range(1, 6)]
    made = compiled(BACKEND, another, *old, policy(rule(), name="a-late-one", targets=both))
    late = made.standings[Ref("AccessPolicy", "default", "a-late-one")]
    assert [(each.accepted, each.reason) for each in late.targets] == [(False, "LimitPerTargetExceeded")] * 2
    others = [each for ref, each in made.standings.items() if ref != late.ref]
    assert [standing.accepted for each in others for standing in each.targets] == [True] * 5
    cafe = made.policies.attachments[PolicyTarget(Ref("Backend", "default", "cafe"))]
    assert [(type(each), each.ref.name) for each in cafe.policies] == [(Unusable, "a-late-one")]


@pytest.mark.requirement("R44")
def test_a_target_has_one_policy_with_an_external_action_the_oldest() -> None:
    action = f"  action: ExternalAuth\n  externalAuth: {external()}"
    made = compiled(
        BACKEND,
        SERVICES,
        policy(kind="XAccessPolicy", name="a", more=action),
        policy(kind="XAccessPolicy", name="b", more=action, created="2026-01-01T00:00:00Z"),
    )
    assert {ref.name: each.targets[0].reason for ref, each in made.standings.items()} == {
        "a": "LimitPerTargetExceeded",
        "b": "Accepted",
    }


@pytest.mark.requirement("R40")
def test_policies_come_by_age_then_by_name_and_those_without_a_time_last() -> None:
    made = compiled(
        BACKEND,
        policy(rule(), name="d"),
        policy(rule(), name="c"),
        policy(rule(), name="a", created="2026-02-01T00:00:00Z"),
        policy(rule(), name="b", created="2026-01-01T00:00:00Z"),
    )
    assert [each.ref.name for each in made.policies.attachments[PolicyTarget(SHOP)].policies] == ["b", "a", "c", "d"]


# --- Policies that cannot be read


def test_a_policy_that_cannot_be_read_denies_what_it_names() -> None:
    another = BACKEND.replace("{name: shop}", "{name: cafe}")
    made = compiled(BACKEND, another, GATEWAY, policy("[{sauce: {}}]"))
    assert {str(aim) for aim, attachment in made.policies.attachments.items() if attachment.policies} == {
        "Backend/default/shop"
    }
    assert made.standings[P].targets[0].reason == "Invalid"


def test_a_policy_whose_targets_cannot_be_read_denies_everything_in_its_namespace() -> None:
    another = BACKEND.replace("{name: shop}", "{name: cafe, namespace: other}")
    made = compiled(BACKEND, another, GATEWAY, policy(targets="shop"))
    denied = {str(aim) for aim, attachment in made.policies.attachments.items() if attachment.policies}
    assert denied == {
        "Backend/default/shop",
        "Gateway/default/edge",
        "Gateway/default/edge/web",
        "Gateway/default/edge/admin",
    }


def test_a_configuration_that_cannot_be_used_allows_nothing() -> None:
    closed = "the AuthplaneConfiguration is invalid"
    assert compiled(BACKEND, settings("{strickt: true}")).policies.closed == closed
    assert compiled(BACKEND, settings("{issuers: [{url: 'http://a'}]}")).policies.closed == closed
    assert compiled(BACKEND, settings("{issuers: [{url: 'https://a', clockSkew: 5m}]}")).policies.closed == closed
    assert compiled(BACKEND, settings("{}")).policies.closed == ""


def test_issuers_are_those_that_policies_name_each_once_as_they_are_configured() -> None:
    made = compiled(
        BACKEND,
        settings(
            "{issuers: [{url: 'https://issuer.example', clockSkew: 10s, jwksHosts: [k.example]}, {url: 'https://b'}]}"
        ),
        policy(rule(OIDC), name="a"),
        policy(oidc(", audiences: [a]", "issuer.example"), name="b"),
    )
    [issuer] = made.policies.issuers
    assert (issuer.url.url, issuer.url.literal) == ("https://issuer.example", "issuer.example")
    assert issuer.demands.times.skew == 10
    assert issuer.reach.jwks_hosts == ("k.example",)


def test_an_issuer_whose_authority_is_missing_is_not_followed_and_said() -> None:
    made = compiled(
        BACKEND,
        settings("{issuers: [{url: 'https://issuer.example', caSecret: {namespace: a, name: b}}]}"),
        policy(rule(OIDC)),
    )
    assert made.policies.issuers == ()
    assert [each.rpartition(" ")[2] for each in errors(made)] == ["[IssuerUnreachable]"]
    assert made.standings[P].targets[0].accepted
    assert [each.reason for each in made.standings[P].unresolved] == ["IssuerUnreachable"]


# --- One generation after another


def test_a_document_that_has_not_changed_is_not_read_again() -> None:
    library = Library()
    library.changed("a.yaml", (BACKEND + "---" + policy(rule())).encode())
    compiler = PolicyCompiler()
    first = compiler.compile(library.current().resources)
    library.changed("b.yaml", policy(rule(), name="q").encode())
    second = compiler.compile(library.current().resources)
    before, after = (each.policies.attachments[PolicyTarget(SHOP)].policies for each in (first, second))
    assert before[0].rules is after[0].rules  # type: ignore[union-attr]
    assert [each.ref.name for each in after] == ["p", "q"]
    assert second == compile_policies(library.current().resources)


def test_other_settings_are_taken_into_account_at_once() -> None:
    library = Library()
    library.changed(
        "a.yaml", (BACKEND + "---" + policy(rule("{type: ServiceAccount, serviceAccount: {name: a}}"))).encode()
    )
    compiler = PolicyCompiler()
    compiler.compile(library.current().resources)
    library.changed("b.yaml", settings("{trustDomain: td}").encode())
    made = compiler.compile(library.current().resources)
    assert made == compile_policies(library.current().resources)
    assert "spiffe://td/ns/default/sa/a" in repr(made.policies.attachments)


def test_http_issuers_are_for_development() -> None:
    local = policy(oidc(", audiences: [a]", "http://127.0.0.1:8080"))
    assert errors(compiled(BACKEND, local)) != []
    assert errors(compiled(BACKEND, local, options=Options(allow_http_issuers=True))) == []


def test_a_rule_may_ask_many_services() -> None:
    made = compiled(BACKEND, SERVICES, policy(anybody(f"[{asks()}, {asks('authz2')}]")))
    assert errors(made) == []
