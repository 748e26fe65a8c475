"""Requires that targets of policies exist, for sources where a missing target is a mistake.

In a folder a target that does not exist is a mistake in the policy: the last version whose targets all existed stays in
force, so that a misspelled name opens nothing. A cluster makes no such demand, since its objects come in any order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem
from authplane.resources.document_keys import key_of
from authplane.resources.documents import Finding, Resources
from authplane.resources.kinds.agentic import AccessPolicy, XAccessPolicy, XAccessPolicyV0
from authplane.resources.loaded_resources import Loaded
from authplane.resources.nameable_targets import (
    GROUPS,
    PolicyTarget,
    Written,
    exists,
    kind_problem,
    listeners,
    meant_kind,
    named,
    written_policies,
)
from authplane.resources.stencils import Stencils
from authplane.resources.typed.shapes import suggestion

_NOT_FOUND: Final = "TargetNotFound"
_KEPT: Final = " The last good version stays in force."
_DENIED: Final = " Until then, authplane denies all requests to the Gateway."


class _Fault(NamedTuple):
    """A target that is not there: where it is written, and what is wrong with it."""

    path: Path
    reason: str
    message: str
    otherwise: str = ""
    """What comes of it without a last good version."""


class _Version(NamedTuple):
    """A policy whose targets all existed, and the text it was read from."""

    policy: Written
    text: str


class RequiredTargets:
    """Keeps the last version of each policy whose targets all existed, load after load."""

    def __init__(self) -> None:
        self._good: dict[Ref, _Version] = {}
        self._kept: frozenset[Ref] = frozenset()

    def kept(self) -> Mapping[str, str]:
        """Return the texts of the policies in force that are in no file any more, by their names."""
        return {str(ref): self._good[ref].text for ref in self._kept if self._good[ref].text}

    def remember(self, texts: Mapping[str, str]) -> None:
        """Start with the texts that were kept before; a text without such a policy is no good version."""
        stencils = Stencils()
        for name, text in texts.items():
            for doc in stencils.build(text).docs:
                if str(doc.ref) == name and isinstance(doc.resource, AccessPolicy | XAccessPolicyV0 | XAccessPolicy):
                    self._good[doc.ref] = _Version(doc.resource, text)

    def __call__(self, loaded: Loaded) -> Loaded:
        """Return what is in force: a policy with missing targets is replaced by its last good version, if any.

        Without one, the policy stays in force on its other targets.
        """
        before, self._good = self._good, {}
        kept: dict[Ref, Written] = {}
        found: list[Finding] = []
        for ref, policy in written_policies(loaded.resources):
            faults = tuple(_faults(policy, ref.namespace, loaded.resources))
            good = before.get(ref) if faults else _Version(policy, _text(loaded, ref))
            if good is not None:
                self._good[ref] = good
                if good.policy is not policy:
                    kept[ref] = good.policy
            # The compiler reports what is wrong with a kind, unless the policy is not compiled.
            told = faults if ref in kept else (each for each in faults if each.reason == _NOT_FOUND)
            found += (_finding(each, ref, loaded, kept=ref in kept) for each in told)
        self._kept = frozenset(kept)
        return _with(loaded, kept, found) if found else loaded


def _text(loaded: Loaded, ref: Ref) -> str:
    claims = loaded.origins.claims.get(key_of(ref), ())
    return claims[0].chunk.text if claims else ""


def _faults(policy: Written, namespace: str, resources: Resources) -> Iterator[_Fault]:
    for index, written in enumerate(policy.spec.target_refs):
        kind, path = meant_kind(written.kind), ("spec", "targetRefs", index)
        if kind not in GROUPS:
            yield _Fault((*path, "kind"), "UnsupportedTarget", kind_problem(written) + suggestion(written.kind, GROUPS))
            continue
        aim = PolicyTarget(Ref(kind, namespace, written.name), written.section_name if kind == "Gateway" else "")
        # One that cannot be read is there, and says itself what is wrong with it.
        if exists(resources, aim) or aim.ref in resources.broken:
            continue
        if aim.section and exists(resources, PolicyTarget(aim.ref)):
            message = f"Gateway {aim.ref.object_name} has no listener {aim.section!r}."
            hint = suggestion(aim.section, listeners(resources).get(aim.ref, ()))
            yield _Fault(
                (*path, "sectionName"),
                _NOT_FOUND,
                message + (hint or " Add the listener, or correct sectionName."),
                _DENIED,
            )
        else:
            yield _Fault(
                (*path, "name"),
                _NOT_FOUND,
                f"{aim.ref.kind} {aim.ref.object_name} not found." + _name_hint(aim, resources),
            )


def _name_hint(aim: PolicyTarget, resources: Resources) -> str:
    ref = aim.ref
    refs = [each for kind in GROUPS for each in named(resources, kind)]
    close = suggestion(
        ref.name, (each.name for each in refs if (each.kind, each.namespace) == (ref.kind, ref.namespace))
    )
    return close or _elsewhere(ref, refs)


def _elsewhere(ref: Ref, refs: list[Ref]) -> str:
    """Name a target that may be meant: of another kind, or in another namespace."""
    other = next((each for each in refs if each.name == ref.name), None)
    if other is None:
        return f" Add the {ref.kind}, or correct the name."
    if other.namespace == ref.namespace:
        return f" {other} exists. Correct the kind."
    return (
        f" {other} exists, but a policy protects only targets in its own namespace. Move the policy to that namespace."
    )


def _finding(fault: _Fault, ref: Ref, loaded: Loaded, *, kept: bool) -> Finding:
    problem = Problem(fault.path, fault.reason, fault.message + (_KEPT if kept else fault.otherwise))
    return Finding(loaded.place(ref, fault.path), ref, problem)


def _with(loaded: Loaded, kept: dict[Ref, Written], found: list[Finding]) -> Loaded:
    resources = loaded.resources
    if kept:
        ours = {ref.object_name: each for ref, each in kept.items() if isinstance(each, AccessPolicy)}
        others = {ref.object_name: each for ref, each in kept.items() if not isinstance(each, AccessPolicy)}
        resources = replace(
            resources,
            access_policies=MappingProxyType({**resources.access_policies, **ours}),
            x_access_policies=MappingProxyType({**resources.x_access_policies, **others}),
        )
    return replace(
        loaded,
        resources=resources,
        findings=tuple(sorted((*loaded.findings, *found), key=lambda each: each.place)),
        last_good=loaded.last_good | kept.keys(),
    )
