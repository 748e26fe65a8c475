"""A namespace has room for so many policies: those beyond deny what they protect, and cost the others little."""

import pytest
from tests.support.policies.callers import workload
from tests.support.policies.compiled import compiled
from tests.support.policies.documents import BACKEND, OPEN, policy, rule
from tests.support.policies.judging import judge, word
from tests.support.policies.mcp_requests import ADD_CALL

from authplane.cel.check.program import compile_expression
from authplane.controlplane.status.access_policy_status import build_ancestors
from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import Compiled, PolicyCompiler, Standing
from authplane.policy.rules.access_settings import Options
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.sources.document_versions import Library

TWO = Options(most_per_namespace=2)
SAID = (
    "metadata.namespace: Namespace 'default' already has 2 policies, which is the maximum, so this policy denies all "
    "requests. Remove or merge policies."
)


def backend(name: str, namespace: str = "default") -> str:
    return BACKEND.replace("{name: shop}", f"{{name: {name}, namespace: {namespace}}}")


def only(name: str, created: str, namespace: str = "default", rules: str = rule()) -> str:
    return policy(rules, name=name, namespace=namespace, created=created, targets=f"[{{kind: Backend, name: {name}}}]")


DOCUMENTS = (
    *map(backend, ("a", "b", "c")),
    only("a", "2026-01-03T00:00:00Z"),
    only("b", "2026-01-01T00:00:00Z"),
    only("c", "2026-01-02T00:00:00Z"),
    backend("d", "other"),
    only("d", "2026-01-04T00:00:00Z", "other", rule(authorization="[{type: InlineTools, tools: [add]}]")),
)


def words(made: Compiled) -> dict[str, str]:
    backends = [aim.ref for aim in made.policies.attachments if aim.ref.kind == "Backend"]
    return {
        ref.name: word(judge(made.policies, ADD_CALL, workload(), target=RequestTarget(backend=ref)))
        for ref in backends
    }


@pytest.mark.requirement("T06", "R37")
def test_the_youngest_policies_of_a_crowded_namespace_deny_and_others_are_as_they_were() -> None:
    made = compiled(*DOCUMENTS, options=TWO)
    assert words(made) == {"a": "403", "b": "allow", "c": "allow", "d": "allow"}
    ref = Ref("AccessPolicy", "default", "a")
    assert [str(each) for each in made.problems[ref]] == [f"{SAID} [LimitPerNamespaceExceeded]"]
    aim = PolicyTarget(Ref("Backend", "default", "a"))
    assert made.standings[ref].targets == (
        Standing(
            aim, accepted=False, reason="LimitPerNamespaceExceeded", message=f"{SAID} [LimitPerNamespaceExceeded]"
        ),
    )
    [ancestor] = build_ancestors(made.standings[ref])
    accepted = ancestor.conditions[0]
    assert (accepted.type, accepted.status, accepted.reason) == ("Accepted", "False", "LimitPerNamespaceExceeded")


@pytest.mark.requirement("T06")
def test_a_policy_of_a_crowded_namespace_gets_its_place_when_an_older_one_goes_and_loses_it_again() -> None:
    library, compiler = Library(), PolicyCompiler(TWO)
    for index, text in enumerate(DOCUMENTS):
        library.changed(f"{index}.yaml", text.encode())
    assert words(compiler.compile(library.current().resources))["a"] == "403"
    library.changed("open.yaml", OPEN.encode())
    library.removed("4.yaml")
    assert words(compiler.compile(library.current().resources)) == {
        "a": "allow",
        "b": "allow",
        "c": "allow",
        "d": "allow",
    }
    library.changed("4.yaml", DOCUMENTS[4].encode())
    assert words(compiler.compile(library.current().resources))["a"] == "403"


@pytest.mark.requirement("T06")
def test_what_is_beyond_the_quota_is_not_even_read() -> None:
    expression = "request.mcp.tool_name == 'beyond-the-quota'"
    crowd = [
        only(
            f"p{index}",
            f"2026-02-01T00:00:{index:02}Z",
            rules=rule(authorization=f'[{{type: CEL, cel: "{expression}"}}]'),
        )
        for index in range(20)
    ]
    before = compile_expression.cache_info()
    compiled(*DOCUMENTS, *crowd, options=TWO)
    after = compile_expression.cache_info()
    assert (after.hits, after.misses) == (before.hits, before.misses)


@pytest.mark.parametrize("section", ["web", "nowhere"])
def test_a_listener_is_denied_and_with_one_that_is_not_there_the_whole_gateway(section: str) -> None:
    gateway = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: web, port: 80, protocol: HTTP}, {name: admin, port: 81, protocol: HTTP}]}
"""
    late = policy(rule(), name="late", targets=f"[{{kind: Gateway, name: edge, sectionName: {section}}}]")
    made = compiled(*DOCUMENTS, gateway, late, options=TWO).policies
    denied = {
        aim.section for aim, attachment in made.attachments.items() if aim.ref.kind == "Gateway" and attachment.policies
    }
    assert denied == ({"web"} if section == "web" else {"", "web", "admin"})
