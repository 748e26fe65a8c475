"""Whatever breaks or goes, nothing that was denied becomes allowed; only a policy that is deleted may do that."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import compiled
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, SPIFFE, anybody, policy, rule
from tests.support.policies.documents import settings as configured
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, call
from tests.support.policies.names import THROUGH_EDGE, TO_SHOP

from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.policy.verdicts.effects import Declined, Granted, NoAnswer, Outcome
from authplane.sources.document_versions import Library

AWAY = "{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: away, namespace: infra, port: 9000}}}"
DOCUMENTS = {
    "backend": BACKEND,
    "gateway": GATEWAY,
    "services": SERVICES,
    "away": SERVICES.replace("{name: authz}", "{name: away, namespace: infra}").partition("---")[0],
    "grant": """
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: infra}
spec:
  from: [{group: agentic.networking.x-k8s.io, kind: AccessPolicy, namespace: default}]
  to: [{group: "", kind: Service}]
""",
    "configuration": configured("{unprotectedBackends: Allow, issuers: [{url: 'https://issuer.example'}]}"),
    "tools": policy(f"{rule()[:-1]}, {rule(OIDC)[1:]}", name="tools"),
    "asking": policy(
        anybody(f"[{asks()}, {AWAY}, {{type: CEL, cel: 'request.mcp.tool_name == \"add\"'}}]"), name="asking"
    ),
    "edge": policy(rule(), name="edge", targets="[{kind: Gateway, name: edge}]"),
    "screen": policy(
        f"[{{source: {SPIFFE}}}]",
        name="screen",
        kind="XAccessPolicy",
        more=f"  action: ExternalAuth\n  externalAuth: {external('authz2')}",
    ),
}  # fmt: skip
POLICIES = ("tools", "asking", "edge", "screen")


def cut(text: str) -> str:
    return f"{text[: text.find('rules:') + 6]} [{{"


BREAKS: dict[str, Callable[[str], str]] = {
    "a field that is none": lambda text: text.replace("spec:", "spec:\n  sauce: 1"),
    "an unknown version": lambda text: text.replace("/v1alpha1", "/v9"),
    "a wrong type": lambda text: text.replace("rules: [", "rules: [7, "),
    "rules that are none": lambda text: text.replace("  rules: ", "  rules: 5 #"),
    "targets that are none": lambda text: text.replace("  targetRefs: ", "  targetRefs: 5 #"),
    "a target without a name": lambda text: text.replace("name: shop}]", "nam: shop}]").replace(
        "name: edge}]", "nam: edge}]"
    ),
    "a target besides that cannot be": lambda text: text.replace(
        "targetRefs: [", "targetRefs: [{kind: Pod, name: x}, "
    ),
    "a target in lower case": lambda text: text.replace("kind: Backend, name", "kind: backend, name"),
    "a target of another group": lambda text: text.replace(
        "[{kind: Backend, name", "[{group: apps, kind: Backend, name"
    ),
    "targets in the plural": lambda text: text.replace("[{kind: Gateway, name", "[{kind: Gateways, name"),
    "targets twice": lambda text: text.replace(
        "  targetRefs: ", "  targetRefs: [{kind: Backend, name: x}]\n  targetRefs: "
    ),
    "everything twice": lambda text: text.replace("spec:", "spec: {targetRefs: [], rules: []}\nspec:"),
    "a target's name twice": lambda text: text.replace("name: shop}]", "name: x, name: shop}]").replace(
        "name: edge}]", "name: x, name: edge}]"
    ),
    "targets that are merged": lambda text: text.replace(
        "  targetRefs: ", "  targetRefs: []\n  <<: {targetRefs: 1}\n  # "
    ),
    "an expression": lambda text: text.replace("request.mcp.tool_name", "request.mcp.tool_nam"),
    "an id": lambda text: text.replace("spiffe://cluster.local", "spiffe://Cluster.local"),
    "an issuer": lambda text: text.replace("https://issuer.example", "http://issuer.example"),
    "a rule twice": lambda text: text.replace("  rules: [", "  rules: [{name: a}, {name: a}, "),
    "a member twice": lambda text: text + "  rules: []\n",
    "a text that ends too early": cut,
    "a type of authorization": lambda text: text.replace("type: InlineTools", "type: InlineTool"),
    "a service": lambda text: text.replace("port: 9000", "port: 9999"),
    "a grant": lambda text: text.replace("io, kind: AccessPolicy", "io, kind: HTTPRoute"),
    "a listener": lambda text: text.replace("kind: Gateway, name: edge", "kind: Gateway, name: edge, sectionName: x"),
}
REQUESTS = {"add": ADD_CALL, "sub": call("sub"), "initialize": INITIALIZE, "batch": call(body=b"[]")}
PROOFS = {"nobody": Proof(), "agent": workload(), "token": bearer(), "another": bearer(aud="x")}
OUTCOMES: dict[str, Outcome] = {"grants": Granted(), "declines": Declined(), "silent": NoAnswer("x")}

documents = st.sampled_from(sorted(DOCUMENTS))
harms = st.lists(
    st.one_of(
        st.tuples(documents.filter(lambda name: name not in {*POLICIES, "configuration"}), st.just("gone")),
        st.tuples(documents, st.sampled_from(sorted(BREAKS))),
    ),
    min_size=1,
    max_size=3,
)


def harmed(kinds: list[tuple[str, str]]) -> list[str]:
    texts = dict(DOCUMENTS)
    for name, harm in kinds:
        if harm == "gone":
            texts.pop(name, None)
        elif name in texts:
            texts[name] = BREAKS[harm](texts[name])
    return list(texts.values())


@pytest.mark.slow
@pytest.mark.requirement("R37")
@settings(max_examples=200, deadline=None)
@given(
    kinds=harms,
    asked=st.sampled_from(sorted(REQUESTS)),
    proof=st.sampled_from(sorted(PROOFS)),
    answers=st.tuples(*[st.sampled_from(sorted(OUTCOMES))] * 3),
    target=st.sampled_from([TO_SHOP, THROUGH_EDGE]),
)
def test_harm_never_turns_a_denial_into_an_allowance(
    kinds: list[tuple[str, str]], asked: str, proof: str, answers: tuple[str, str, str], target: object
) -> None:
    def said(texts: list[str]) -> str:
        names = ("authz", "authz2", "away")
        services = Services(**{name: OUTCOMES[answer] for name, answer in zip(names, answers, strict=True)})
        made = compiled(*texts).policies
        return word(judge(made, REQUESTS[asked], PROOFS[proof], services, target=target))  # type: ignore[arg-type]

    if said(list(DOCUMENTS.values())) != "allow":
        assert said(harmed(kinds)) != "allow"


def test_without_harm_something_is_allowed() -> None:
    made = compiled(*DOCUMENTS.values()).policies
    services = Services(authz2=Granted())
    assert word(judge(made, ADD_CALL, workload(), services, target=THROUGH_EDGE)) == "allow"


@pytest.mark.parametrize("harm", BREAKS)
def test_a_policy_alone_that_breaks_does_not_open_its_target(harm: str) -> None:
    written = policy(
        f"[{{source: {SPIFFE}, authorization: [{asks()}, {{type: CEL, cel: 'request.mcp.tool_name == \"sub\"'}}]}}]"
    )
    broken = BREAKS[harm](written)
    made = compiled(BACKEND, SERVICES, broken).policies
    assert word(judge(made, ADD_CALL, Proof())) != "allow"
    assert word(judge(made, ADD_CALL, workload(), Services(authz=Declined()))) != "allow"


DAMAGED = {
    "no name": policy(rule()).replace("name: p,", ""),
    "a name that cannot be": policy(rule()).replace("name: p,", "name: P_,"),
    "no text": cut(policy(rule())),
    "a namespace that cannot be": policy(rule(), namespace="A"),
    "a word in disguise": cut(policy(rule())).replace("AccessPolicy", '"Access\\x50olicy"'),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_policy_of_which_nothing_is_known_leaves_nothing_open(text: str) -> None:
    verdict = judge(compiled(BACKEND, text).policies, ADD_CALL, workload())
    assert (word(verdict), verdict.grounds.reason) == ("unavailable", "a.yaml may contain a policy and cannot be read")


def test_what_is_no_policy_and_cannot_be_read_closes_nothing() -> None:
    assert word(judge(compiled(OPEN, BACKEND, "kind: [").policies, ADD_CALL, workload())) == "allow"


def test_a_file_that_cannot_be_read_closes_everything_unless_what_it_held_is_in_force() -> None:
    library = Library()
    library.changed("a.yaml", f"{BACKEND}---{policy(rule())}".encode())
    library.unreadable("b.yaml", "permission denied")
    assert library.current().resources.doubt == "b.yaml may contain a policy and cannot be read"
    library.removed("b.yaml")
    assert library.current().resources.doubt == ""
    library.unreadable("a.yaml", "permission denied")
    assert library.current().resources.doubt == ""
    assert len(library.current().resources.access_policies) == 1


@pytest.mark.requirement("R37")
def test_a_version_that_cannot_be_read_leaves_the_last_good_one_in_force() -> None:
    library, compiler = Library(), PolicyCompiler()
    library.changed("a.yaml", f"{BACKEND}---{policy(rule())}".encode())
    before = compiler.compile(library.current().resources)
    library.changed("a.yaml", f"{BACKEND}---{policy('[{sauce: 1}]')}".encode())
    after = compiler.compile(library.current().resources)
    assert after.policies == before.policies
    assert word(judge(after.policies, ADD_CALL, workload())) == "allow"


STATUSES: dict[str, tuple[str, str]] = {
    "none": ("", "allow"),
    "one of nobody": ("status: 7", "allow"),
    "room for one more": (f"status: {{ancestors: [{', '.join(['{controllerName: other}'] * 15)}]}}", "allow"),
    "full of others": (f"status: {{ancestors: [{', '.join(['{controllerName: other}'] * 16)}]}}", "403"),
    "full, with an entry of ours": (
        f"status: {{ancestors: [{', '.join(['{controllerName: other}'] * 15)},"
        " {controllerName: authplane.dev/controller}]}",
        "allow",
    ),
    "full of what cannot be read": (f"status: {{ancestors: [{', '.join('1' * 16)}]}}", "403"),
}


@pytest.mark.requirement("R74", "T07")
@pytest.mark.parametrize(("status", "want"), STATUSES.values(), ids=STATUSES.keys())
def test_a_policy_whose_status_is_full_denies_its_target(status: str, want: str) -> None:
    made = compiled(BACKEND, f"{policy(rule())}\n{status}")
    assert word(judge(made.policies, ADD_CALL, workload())) == want
    [standing] = made.standings[Ref("AccessPolicy", "default", "p")].targets
    assert standing.reason == ("StatusFull" if want == "403" else "Accepted")


def test_a_policy_denies_while_others_fill_its_status() -> None:
    library, compiler = Library(), PolicyCompiler()
    got = []
    for name in ("room for one more", "full of others", "room for one more"):
        status = STATUSES[name][0]
        library.changed("a.yaml", f"{BACKEND}---{policy(rule())}\n{status}".encode())
        made = compiler.compile(library.current().resources)
        got.append(word(judge(made.policies, ADD_CALL, workload())))
    assert got == ["allow", "403", "allow"]
