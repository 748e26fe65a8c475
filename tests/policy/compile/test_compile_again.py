"""What later passes share with earlier ones."""

import pytest
from tests.support.policies.documents import BACKEND, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.names import SHOP

from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import PolicyCompiler, compile_policies
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import AnyPolicy
from authplane.sources.document_versions import Library

OTHER = BACKEND.replace("name: shop}", "name: other}", 1)


def passes(*texts: dict[str, str]) -> list[tuple[AnyPolicy, ...]]:
    """Return the policies before the shop, each time after the files changed."""
    library, compiler, found = Library(), PolicyCompiler(), []
    for files in texts:
        for name, text in files.items():
            library.changed(name, text.encode())
        found.append(compiler.compile(library.current().resources).policies.attachments[PolicyTarget(SHOP)].policies)
    return found


def test_a_policy_is_the_same_object_while_neither_it_nor_what_it_names_changes() -> None:
    held = policy(anybody(f"[{asks()}]"))
    first, beside, moved, edited = passes(
        {"a.yaml": BACKEND, "p.yaml": held, "s.yaml": SERVICES},
        {"b.yaml": OTHER},
        {"s.yaml": SERVICES.replace("9000", "9001")},
        {"p.yaml": policy(rule())},
    )
    assert beside[0] is first[0]
    assert moved != first
    assert len({id(each) for found in (first, moved, edited) for each in found}) == 3


SERVER = BACKEND.replace("{type: MCP, mcp: {serviceName: shop, port: 80}}", "{type: GRPC, grpc: {port: 50051}}")
CHANGES = {
    "a target is gone": {"a.yaml": ""},
    "the target is a gRPC server": {"a.yaml": SERVER},
    "both targets are gone": {"a.yaml": "", "b.yaml": ""},
    "others are older": {
        f"{number}.yaml": policy(rule(), name=f"older-{number}", created="2026-01-01T00:00:00Z") for number in range(6)
    },
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_around_a_policy_leads_where_the_documents_lead_by_themselves(changed: dict[str, str]) -> None:
    both = "[{kind: Backend, name: shop}, {kind: Backend, name: other}]"
    library, compiler = Library(), PolicyCompiler()
    for files in ({"a.yaml": BACKEND, "b.yaml": OTHER, "p.yaml": policy(rule(), targets=both)}, changed):
        for name, text in files.items():
            library.changed(name, text.encode()) if text else library.removed(name)
        compiled = compiler.compile(library.current().resources)
    assert compiled == compile_policies(library.current().resources)
    assert {each.accepted for each in compiled.standings[Ref("AccessPolicy", "default", "p")].targets} != {True}
