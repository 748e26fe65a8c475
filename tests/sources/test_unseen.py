"""Documents that somebody may believe to be in force, and that are not: nothing of it goes unsaid."""

import pytest

from authplane.sources.document_versions import Library

POLICY = """
apiVersion: {api}
kind: {kind}
metadata: {{name: p}}
spec: {{targetRefs: [{{kind: Backend, name: shop}}], rules: []}}
"""
INNER = "{apiVersion: agentic.networking.x-k8s.io/v1alpha1, kind: AccessPolicy, metadata: {name: p}}"
LISTS = {
    "a list in a list": f"items: [{{apiVersion: v1, kind: List, items: [{INNER}]}}]",
    "items that are a mapping": f"items: {{p: {INNER}}}",
}
NOTHING = {"no items": "", "an empty list": "items: []", "null": "items:"}


def said(text: str) -> tuple[list[str], str]:
    library = Library()
    library.changed("a.yaml", text.encode())
    loaded = library.current()
    return [f"{each.problem.severity}: {each.problem}" for each in loaded.findings], loaded.resources.doubt


@pytest.mark.parametrize("items", LISTS.values(), ids=LISTS.keys())
def test_an_unreadable_list_may_contain_a_policy(items: str) -> None:
    problem = (
        "error: items: A List must have a list of resources and no inner List. Move the inner "
        "resources into this List. [NotAResource]"
    )
    assert said(f"apiVersion: v1\nkind: List\n{items}\n") == (
        [problem],
        "a.yaml may contain a policy and cannot be read",
    )


@pytest.mark.parametrize("items", NOTHING.values(), ids=NOTHING.keys())
def test_an_empty_list_is_nothing(items: str) -> None:
    assert said(f"apiVersion: v1\nkind: List\n{items}\n") == ([], "")


@pytest.mark.parametrize("kind", ["AccessPolicy", "XAccessPolicy"])
def test_a_policy_of_another_group_is_left_alone_with_a_warning(kind: str) -> None:
    problem = (
        f"apiVersion: {kind} of 'agentic.networking.k8s.io/v1alpha1' is not a kind of authplane, so this resource "
        "protects nothing."
    )
    [warning], doubt = said(POLICY.format(api="agentic.networking.k8s.io/v1alpha1", kind=kind))
    assert (warning.partition(" Supported: ")[0], doubt) == (f"warning: {problem}", "")


def test_a_warning_keeps_nothing_in_force_that_was_removed() -> None:
    library = Library()
    foreign = POLICY.format(api="example.com/v1", kind="AccessPolicy")
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n"
    library.changed("a.yaml", f"{foreign}---\n{service}".encode())
    assert len(library.current().resources.services) == 1
    library.changed("a.yaml", foreign.encode())
    assert len(library.current().resources.services) == 0


@pytest.mark.requirement("R9")
@pytest.mark.parametrize(
    ("kind", "version"), [("Backend", "v1alpha1"), ("XBackend", "v0alpha0")], ids=["Backend", "XBackend"]
)
@pytest.mark.parametrize(
    ("mcp", "given"),
    [
        ("port: 80", "None of them is set"),
        ("port: 80, serviceName: a, hostname: b.example", "serviceName and hostname are set"),
    ],
)
def test_a_backend_of_either_kind_is_a_service_or_a_host(kind: str, version: str, mcp: str, given: str) -> None:
    head = f"apiVersion: agentic.networking.x-k8s.io/{version}\nkind: {kind}\nmetadata: {{name: b}}"
    text = f"{head}\nspec: {{mcp: {{{mcp}}}}}"
    needed = "A Backend needs exactly one of serviceName, hostname and url."
    problem = f"{needed} {given}. Set one of the three. [FieldInvalid]"
    assert said(text) == ([f"error: spec.mcp: {problem}"], "")
