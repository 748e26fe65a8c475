"""Targets that must exist: in a folder, a policy that names nothing gives way to its last good version."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from tests.support.policies.callers import workload
from tests.support.policies.documents import BACKEND, GATEWAY, OPEN, policy, rule
from tests.support.policies.judging import judge, word
from tests.support.policies.mcp_requests import ADD_CALL
from tests.support.policies.names import SHOP

from authplane.core.names import Ref
from authplane.policy.compile.compile_policies import compile_policies
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets

P = Ref("AccessPolicy", "default", "p")
KEPT = " The last good version stays in force."
NOT_FOUND = "spec.targetRefs[0].name: Backend default/{} not found.{} [TargetNotFound]"
ADD = " Add the Backend, or correct the name."
CAFE = BACKEND.replace("{name: shop}", "{name: cafe}")
ELSEWHERE = BACKEND.replace("{name: shop}", "{name: far-away, namespace: other}")


def to(*names: str, kind: str = "Backend", more: str = "", **about: str) -> str:
    """Return a policy for targets."""
    return policy(rule(), targets=f"[{', '.join(f'{{kind: {kind}, name: {name}{more}}}' for name in names)}]", **about)


class Folder:
    """A library that demands that targets exist, one file for each document."""

    def __init__(self, *documents: str) -> None:
        self._library = Library(RequiredTargets())
        self.hold(*documents)

    def hold(self, *documents: str) -> Loaded:
        """Replace everything that the folder holds, in one change."""
        for index in range(9):
            text = documents[index] if index < len(documents) else ""
            self._library.changed(f"{index}.yaml", text.encode()) if text else self._library.removed(f"{index}.yaml")
        return self._library.current()


def said(loaded: Loaded) -> list[str]:
    return [str(each.problem) for each in loaded.findings]


def targets(loaded: Loaded) -> list[str]:
    """Return what the version in force names."""
    return [each.name for each in loaded.resources.access_policies[P.object_name].spec.target_refs]


@pytest.mark.requirement("R37")
def test_a_version_whose_target_does_not_exist_leaves_the_last_good_one_in_force() -> None:
    folder = Folder(OPEN, BACKEND, to("shop"))
    loaded = folder.hold(OPEN, BACKEND, to("shpo"))
    assert said(loaded) == [NOT_FOUND.format("shpo", f" Did you mean 'shop'?{KEPT}")]
    assert [(each.place.file, each.place.line) for each in loaded.findings] == [("2.yaml", 6)]
    assert (targets(loaded), loaded.last_good) == (["shop"], frozenset({P}))
    made = compile_policies(loaded.resources).policies
    assert (word(judge(made)), word(judge(made, ADD_CALL, workload()))) == ("403", "allow")
    assert said(folder.hold(OPEN, BACKEND, to("shop"))) == []


class Change(NamedTuple):
    """What a folder holds in turn, and what is in force in the end."""

    steps: Sequence[Sequence[str]]
    said: Sequence[str]
    targets: Sequence[str]
    kept: bool


CHANGES = {
    "never a good version": Change([(BACKEND, to("gone"))], [NOT_FOUND.format("gone", ADD)], ["gone"], False),
    "another that is not there, and never a good version": Change(
        [(BACKEND, to("gone")), (BACKEND, to("lost"))], [NOT_FOUND.format("lost", ADD)], ["lost"], False
    ),
    "some of several are there, and never a good version": Change(
        [(BACKEND, to("gone", "shop"))], [NOT_FOUND.format("gone", ADD)], ["gone", "shop"], False
    ),
    "one of several is misspelled": Change(
        [(BACKEND, CAFE, to("cafe", "shop")), (BACKEND, CAFE, to("caff", "shop"))],
        [NOT_FOUND.format("caff", f" Did you mean 'cafe'?{KEPT}")],
        ["cafe", "shop"],
        True,
    ),
    "the target goes": Change(
        [(BACKEND, to("shop")), (CAFE, to("shop"))], [NOT_FOUND.format("shop", ADD)], ["shop"], False
    ),
    "the target goes, after its name was misspelled": Change(
        [(BACKEND, to("shop")), (BACKEND, to("gone")), (CAFE, to("gone"))],
        [NOT_FOUND.format("gone", ADD + KEPT)],
        ["shop"],
        True,
    ),
    "the target comes later": Change([(to("shop"),), (to("shop"), BACKEND)], [], ["shop"], False),
    "the new target comes after the new version": Change(
        [(BACKEND, to("shop")), (BACKEND, to("cafe")), (BACKEND, to("cafe"), CAFE)], [], ["cafe"], False
    ),
    "the policy goes and comes again": Change(
        [(BACKEND, to("shop")), (BACKEND,), (BACKEND, to("gone"))], [NOT_FOUND.format("gone", ADD)], ["gone"], False
    ),
    "no targets at all": Change([(BACKEND, to("shop")), (BACKEND, to())], [], [], False),
    "of another kind": Change(
        [(BACKEND, to("shop", kind="XBackend"))],
        ["spec.targetRefs[0].name: XBackend default/shop not found. Backend/default/shop exists. Correct the kind."
         " [TargetNotFound]"],
        ["shop"],
        False,
    ),
    "in another namespace": Change(
        [(BACKEND, ELSEWHERE, to("far-away"))],
        [NOT_FOUND.format("far-away", " Backend/other/far-away exists, but a policy protects only targets in its own"
                          " namespace. Move the policy to that namespace.")],
        ["far-away"],
        False,
    ),
    "a kind that there is not": Change(
        [(BACKEND, to("shop")), (BACKEND, to("shop", kind="Bakcend"))],
        [f"spec.targetRefs[0].kind: A policy cannot protect a 'Bakcend'. Use Backend or Gateway. Did you mean"
         f" 'Backend'?{KEPT} [UnsupportedTarget]"],
        ["shop"],
        True,
    ),
    "a listener": Change(
        [(GATEWAY, to("edge", kind="Gateway", more=", sectionName: amdin"))],
        ["spec.targetRefs[0].sectionName: Gateway default/edge has no listener 'amdin'. Did you mean 'admin'?"
         " Until then, authplane denies all requests to the Gateway. [TargetNotFound]"],
        ["edge"],
        False,
    ),
    "a listener, misspelled later": Change(
        [
            (GATEWAY, to("edge", kind="Gateway", more=", sectionName: admin")),
            (GATEWAY, to("edge", kind="Gateway", more=", sectionName: amdin")),
        ],
        ["spec.targetRefs[0].sectionName: Gateway default/edge has no listener 'amdin'. Did you mean"
         f" 'admin'?{KEPT} [TargetNotFound]"],
        ["edge"],
        True,
    ),
    "a target that cannot be read says so itself": Change(
        [(BACKEND.replace("port: 80", "port: x"), to("shop"))],
        ["spec.mcp.port: Expected an integer, got the string 'x'. [TypeMismatch]"],
        ["shop"],
        False,
    ),
}  # fmt: skip


@pytest.mark.requirement("R37")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_is_in_force(change: Change) -> None:
    folder = Folder()
    for step in change.steps:
        loaded = folder.hold(*step)
    assert (said(loaded), targets(loaded), P in loaded.last_good) == (
        list(change.said),
        list(change.targets),
        change.kept,
    )


def test_a_policy_of_the_later_kind_is_kept_too() -> None:
    ref = Ref("XAccessPolicy", "default", "p")
    folder = Folder(BACKEND, to("shop", kind="Backend").replace("AccessPolicy", "XAccessPolicy"))
    loaded = folder.hold(BACKEND, to("gone", kind="Backend").replace("AccessPolicy", "XAccessPolicy"))
    assert loaded.last_good == {ref}
    assert compile_policies(loaded.resources).policies.attachments[PolicyTarget(SHOP)].policies[0].ref == ref


def test_without_the_demand_a_policy_waits_for_its_target() -> None:
    library = Library()
    library.changed("a.yaml", f"{BACKEND}---{to('shop')}".encode())
    library.current()
    library.changed("a.yaml", f"{BACKEND}---{to('shpo')}".encode())
    loaded = library.current()
    made = compile_policies(loaded.resources)
    assert (said(loaded), dict(made.problems), loaded.last_good) == ([], {}, frozenset())
    assert [(each.accepted, each.reason) for each in made.standings[P].targets] == [(False, "TargetNotFound")]
