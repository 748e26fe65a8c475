"""Policies as people and earlier versions write them, and what is known of those that cannot be read."""

from textwrap import dedent

import pytest

from authplane.core.names import Ref
from authplane.resources.kinds.agentic import (
    AccessPolicy,
    AuthorizationEntry,
    CelRule,
    ServiceAccountSource,
    Source,
    XAccessPolicy,
    XAccessPolicyV0,
)
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library

SHOP = Ref("Backend", "default", "shop")


def load(*texts: str) -> Loaded:
    library = Library()
    for index, text in enumerate(texts):
        library.changed(f"{index}.yaml", dedent(text).encode())
    return library.current()


def policy(rules: str, *, targets: str = "[{kind: Backend, name: shop}]", kind: str = "AccessPolicy") -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: {kind}
metadata: {{name: p}}
spec:
  targetRefs: {targets}
  rules: {rules}
"""


def read(rules: str) -> AccessPolicy:
    loaded = load(policy(rules))
    assert loaded.findings == ()
    [read] = loaded.resources.access_policies.values()
    return read


@pytest.mark.requirement("I1")
@pytest.mark.parametrize(
    ("written", "want"), [("spiffe://a/b", ("spiffe://a/b",)), ("[spiffe://a/b, spiffe://c]", ("spiffe://a/b", "spiffe://c"))]
)  # fmt: skip
def test_a_spiffe_source_is_one_id_or_a_list(written: str, want: tuple[str, ...]) -> None:
    [rule] = read(f"[{{source: {{type: SPIFFE, spiffe: {written}}}}}]").spec.rules
    assert rule.source == Source(type="SPIFFE", spiffe=want)


CEL = AuthorizationEntry(type="CEL", cel=CelRule(expression="true"))


@pytest.mark.requirement("I6")
@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("[{type: CEL, cel: 'true'}]", (CEL,)),
        ("{type: CEL, cel: {expression: 'true'}}", (CEL,)),
        ("{}", ()),
        ("[]", ()),
    ],
)
def test_authorization_is_a_list_or_one_object_and_an_expression_a_text_or_an_object(
    written: str, want: tuple[AuthorizationEntry, ...]
) -> None:
    [rule] = read(f"[{{authorization: {written}}}]").spec.rules
    assert rule.authorization == want


@pytest.mark.requirement("I17")
def test_a_service_account_may_be_one_text() -> None:
    [rule] = read("[{source: {type: ServiceAccount, serviceAccount: team/agent}}]").spec.rules
    assert rule.source is not None
    assert rule.source.service_account == ServiceAccountSource(name="team/agent")


@pytest.mark.requirement("I9")
@pytest.mark.parametrize(
    ("version", "made"),
    [
        ("agentic.networking.x-k8s.io/v1alpha1", XAccessPolicy),
        ("agentic.networking.x-k8s.io/v0alpha0", XAccessPolicyV0),
        ("agentic.prototype.x-k8s.io/v0alpha0", XAccessPolicyV0),
    ],
)
def test_earlier_names_are_read(version: str, made: type) -> None:
    text = policy("[]", kind="XAccessPolicy").replace("agentic.networking.x-k8s.io/v1alpha1", version)
    loaded = load(
        text, text.replace("XAccessPolicy", "XBackend").split("spec:")[0] + "spec: {mcp: {hostname: a, port: 1}}"
    )
    assert [type(each) for each in loaded.resources.x_access_policies.values()] == [made]


BROKEN = {
    "a rule with a typo": (policy("[{sauce: {}}]"), (SHOP,)),
    "an unknown version": (policy("[]").replace("v1alpha1", "v9"), (SHOP,)),
    "no targets to be read": (policy("[]", targets="shop"), None),
    "a target without a name": (policy("[]", targets="[{kind: Backend, name: shop}, {kind: Backend}]"), None),
    "no rules": (policy("null"), (SHOP,)),
    "a member twice": (policy("[]") + "  rules: []\n", (SHOP,)),
}


@pytest.mark.requirement("R1")
@pytest.mark.parametrize(("text", "targets"), BROKEN.values(), ids=BROKEN.keys())
def test_a_policy_that_cannot_be_read_is_known_by_its_targets(text: str, targets: tuple[Ref, ...] | None) -> None:
    loaded = load(text)
    assert loaded.findings
    assert loaded.resources.access_policies == {}
    assert loaded.resources.broken_policies == {Ref("AccessPolicy", "default", "p"): targets}


def test_two_policies_of_one_name_are_broken_and_protect_what_both_name() -> None:
    loaded = load(policy("[]"), policy("[]", targets="[{kind: Gateway, name: edge}]"))
    assert loaded.resources.broken_policies == {
        Ref("AccessPolicy", "default", "p"): (SHOP, Ref("Gateway", "default", "edge"))
    }


def test_a_policy_with_a_last_good_version_is_not_broken() -> None:
    library = Library()
    library.changed("a.yaml", policy("[]").encode())
    library.current()
    library.changed("a.yaml", policy("[{sauce: {}}]").encode())
    loaded = library.current()
    assert loaded.resources.broken_policies == {}
    assert len(loaded.resources.access_policies) == 1
