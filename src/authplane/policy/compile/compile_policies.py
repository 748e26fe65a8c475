"""Compiles all policies: documents in, the policies of each target and the status of each policy out."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import Final

from authplane.core.memo import Generations, Memo, Same
from authplane.core.names import Ref
from authplane.core.problems import Problem, Problems
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import Attachment, AttachmentMemo, Policies, ensure_attachment, trust_domains
from authplane.policy.attached.policy_order import Stands, each_once
from authplane.policy.compile.followed_issuers import followed_issuers, names_of
from authplane.policy.compile.policy_drafts import Draft, build_draft, build_excess
from authplane.policy.compile.policy_quota import over_quota
from authplane.policy.compile.resolved_policies import Resolved, resolve_draft
from authplane.policy.rules.access_settings import Options, Settings, configuration_ref, read_settings
from authplane.policy.rules.backend_tls import BackendTlsPolicies, read_backend_tls
from authplane.policy.rules.policy_targets import (
    BACKENDS,
    GROUPS,
    PolicyTarget,
    Written,
    absence,
    all_in,
    exists,
    is_grpc,
    listeners,
    meant_kind,
    written_policies,
)
from authplane.policy.rules.rule_model import AnyPolicy, Unusable, issuers_of
from authplane.policy.rules.target_choices import NOTHING_CHOSEN, Chosen, parse_chosen
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import Backend, XBackend
from authplane.resources.kinds.gateway import Gateway

UNRESOLVED: Final = frozenset({"RefNotPermitted", "BackendNotFound", "IssuerUnreachable"})
"""Problems of what a policy refers to: the policy applies, and what depends on them is not granted."""
STATUS_FULL: Final = "StatusFull"
CONTROLLER: Final = "authplane.dev/controller"
"""Our controller name in the status of a policy."""
MOST_ANCESTORS: Final = 16
_CROWDED: Final = "LimitPerTargetExceeded"


@dataclass(frozen=True, slots=True)
class Standing:
    """The status of a policy at one of its targets."""

    aim: PolicyTarget
    accepted: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStanding:
    """The status of a policy."""

    ref: Ref
    generation: int
    targets: tuple[Standing, ...]
    unresolved: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    issuers: tuple[str, ...] = ()
    """The addresses of the issuers whose tokens are of use to it."""
    rules: tuple[str, ...] = ()
    shadow: bool = False
    """It is evaluated and not enforced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Policies as they are enforced, and what the same pass found."""

    policies: Policies
    problems: Mapping[Ref, tuple[Problem, ...]]
    """By resource; those without a problem are left out."""
    standings: Mapping[Ref, PolicyStanding]
    tls: BackendTlsPolicies = field(default_factory=BackendTlsPolicies)
    """How Services are reached."""


@dataclass(slots=True)
class _Pass:
    """The state of one pass."""

    resources: Resources
    settings: Settings
    tls: BackendTlsPolicies
    stands: Stands
    problems: dict[Ref, Problems] = field(default_factory=dict)
    standings: dict[Ref, PolicyStanding] = field(default_factory=dict)
    made: Generations[Ref, Resolved] = field(default_factory=Generations)
    attachments: AttachmentMemo = field(default_factory=Memo)
    settled: "Generations[Ref, _Settled]" = field(default_factory=Generations)
    """The policies that are accepted at all of their targets."""

    def of(self, ref: Ref) -> Problems:
        return self.problems.setdefault(ref, Problems())


@dataclass(frozen=True, slots=True)
class _Settled:
    """A policy that is accepted at all of its targets and refers to nothing else, with its status."""

    made: Resolved
    problems: Problems
    standing: PolicyStanding


@dataclass(frozen=True, slots=True)
class _Excess:
    """A policy beyond the limit of its namespace, with its status, which later passes reuse."""

    aims: tuple[PolicyTarget, ...]
    problems: Problems
    policy: Unusable
    standing: PolicyStanding
    shadow: bool


class PolicyCompiler:
    """Compiles generation after generation; a document that has not changed is not read again."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._settings: Memo[str, Settings] = Memo()
        self._drafts: Memo[Ref, Draft | _Excess] = Memo()
        self._made: Generations[Ref, Resolved] = Generations()
        self._settled: Generations[Ref, _Settled] = Generations()
        self._attachments: AttachmentMemo = Memo()

    def compile(self, resources: Resources) -> Compiled:
        """Compile the documents in force.

        A policy that cannot be enforced as written denies all requests to its targets.
        """
        configuration = Problems()
        settings = read_settings(resources, self._options, configuration)
        tls = read_backend_tls(resources)
        for memory in (self._settings, self._made, self._settled, self._attachments):
            memory.start()
        work = _Pass(
            resources,
            self._settings.share("", settings or Settings()),
            tls,
            Stands(self._options),
            made=self._made,
            attachments=self._attachments,
            settled=self._settled,
        )
        work.problems[configuration_ref(resources)] = configuration
        drafts = list(self._draft_all(resources, work.settings))
        for draft in sorted((each for each in drafts if isinstance(each, Draft)), key=lambda each: each.seniority):
            _place(draft, work)
        _place_broken(work)
        for excess in drafts:
            if isinstance(excess, _Excess):
                _place_excess(excess, work)
        for ref, found in tls.problems.items():
            work.of(ref).extend(found)
        return Compiled(
            policies=_policies(
                work, resources.doubt if settings is not None else "the AuthplaneConfiguration is invalid"
            ),
            problems=MappingProxyType(
                {ref: tuple(found) for ref, found in sorted(work.problems.items(), key=_name) if found}
            ),
            standings=MappingProxyType(dict(sorted(work.standings.items(), key=_name))),
            tls=tls,
        )

    def _draft_all(self, resources: Resources, settings: Settings) -> Iterator[Draft | _Excess]:
        # With other settings, every document is read again.
        self._drafts.start(Same(settings))
        excess = over_quota(resources, self._options.most_per_namespace)
        for ref, written in written_policies(resources):
            over = ref in excess
            read = partial(self._excess, written) if over else partial(build_draft, written, settings, self._options)
            yield self._drafts.ensure(ref, (over, Same(written)), read)

    def _excess(self, written: Written) -> _Excess:
        draft = build_excess(written, self._options.most_per_namespace)
        problem = draft.problems[-1]
        standing = PolicyStanding(
            ref=draft.ref,
            generation=draft.generation,
            targets=tuple(
                Standing(aim, accepted=False, reason=problem.reason, message=str(problem)) for aim in draft.aims
            ),
            shadow=draft.shadow,
        )
        problems = Problems()
        problems.extend(draft.problems)
        policy = Unusable(ref=draft.ref, reason=problem.reason, message=problem.words)
        return _Excess(draft.aims, problems, policy, standing, draft.shadow)


def compile_policies(resources: Resources, options: Options | None = None) -> Compiled:
    """Compile once."""
    return PolicyCompiler(options).compile(resources)


def _name(item: tuple[Ref, object]) -> tuple[str, str, str]:
    """Sort by resource, without the cost of comparing dataclasses."""
    ref = item[0]
    return ref.kind, ref.namespace, ref.name


def _place(draft: Draft, work: _Pass) -> None:
    """Attach a policy to its targets; one that cannot be used denies there."""
    settled = work.settled.before.get(draft.ref)
    if settled is None or settled.made.draft is not draft or not _fits(draft, work):
        _settle(draft, work)
        return
    work.stands.put(draft.aims, settled.made.policy, shadow=draft.shadow)
    work.made.now[draft.ref], work.settled.now[draft.ref] = settled.made, settled
    work.problems[draft.ref], work.standings[draft.ref] = settled.problems, settled.standing


def _fits(draft: Draft, work: _Pass) -> bool:
    """Tell whether only the document itself, and no other document, can keep a policy from being accepted."""
    resources = work.resources
    return (
        all(exists(resources, aim) and not is_grpc(resources, aim.ref) for aim in draft.aims)
        and not _is_full(draft, resources)
        and not work.stands.crowd(draft.aims, shadow=draft.shadow, screen=draft.screen is not None)
    )


def _settle(draft: Draft, work: _Pass) -> None:
    easy = not draft.asks and _fits(draft, work)
    problems = work.of(draft.ref)
    problems.extend(draft.problems)
    made = resolve_draft(draft, work.made.before.get(draft.ref), work.resources, work.tls, problems)
    work.made.now[draft.ref], policy = made, made.policy
    present = [aim for aim in draft.aims if exists(work.resources, aim)]
    if any(is_grpc(work.resources, aim.ref) for aim in present):
        for path, why in draft.unknown_to_grpc:
            with problems.at(*path):
                problems.add("NotKnownToServer", why)
    refusal = _refusal(draft, present, work, problems)
    if refusal is None:
        work.stands.put(present, policy, shadow=draft.shadow)
    elif not draft.shadow or refusal.reason != _CROWDED:
        # A listener that does not exist may be any part of its Gateway.
        aims = (aim if exists(work.resources, aim) else PolicyTarget(aim.ref) for aim in draft.aims)
        denied = Unusable(ref=draft.ref, reason=refusal.reason, message=refusal.message)
        work.stands.put(aims, denied, shadow=draft.shadow)
    work.standings[draft.ref] = PolicyStanding(
        ref=draft.ref,
        generation=draft.generation,
        targets=tuple(_standing(aim, refusal, draft, work) for aim in draft.aims),
        unresolved=tuple(each for each in problems.errors if each.reason in UNRESOLVED),
        warnings=problems.warnings,
        issuers=tuple(dict.fromkeys(url for rule in draft.rules for url in sorted(issuers_of(rule.source)))),
        rules=tuple(rule.name for rule in draft.rules),
        shadow=draft.shadow,
    )
    if easy and refusal is None:
        work.settled.now[draft.ref] = _Settled(made, problems, work.standings[draft.ref])


def _refusal(draft: Draft, present: list[PolicyTarget], work: _Pass, problems: Problems) -> Problem | None:
    """Return why a policy is not accepted at any of its targets; None if it is."""
    wrong = [each for each in problems.errors if each.reason not in UNRESOLVED]
    if wrong:
        return wrong[0]
    if _is_full(draft, work.resources):
        message = (
            f"status.ancestors of the policy can have {MOST_ANCESTORS} entries. Other controllers use some of them, "
            "so there is not an entry for each target. authplane denies all requests to the targets. "
            "Remove targets, or split the policy."
        )
        problems.add(STATUS_FULL, message)
        return problems.errors[-1]
    crowded = work.stands.crowd(present, shadow=draft.shadow, screen=draft.screen is not None)
    if not crowded:
        return None
    with problems.at("spec", "targetRefs"):
        problems.add(_CROWDED, crowded)
    return problems.errors[-1]


def _is_full(draft: Draft, resources: Resources) -> bool:
    """Tell whether our entries would be too many for a status that others write into as well."""
    others = sum(each.controller != CONTROLLER for each in resources.stored_ancestors.get(draft.ref, ()))
    return others + len(set(draft.aims)) > MOST_ANCESTORS


def _standing(aim: PolicyTarget, refusal: Problem | None, draft: Draft, work: _Pass) -> Standing:
    if not exists(work.resources, aim):
        message = absence(work.resources, aim)
        if aim.section and exists(work.resources, PolicyTarget(aim.ref)):
            denied = Unusable(ref=draft.ref, reason="TargetNotFound", message=message)
            work.stands.put([PolicyTarget(aim.ref)], denied, shadow=draft.shadow)
        if refusal is None:
            return Standing(aim, accepted=False, reason="TargetNotFound", message=message)
    if refusal is None:
        message = "The policy is evaluated but not enforced." if draft.shadow else "The policy is enforced."
        return Standing(aim, accepted=True, reason="Accepted", message=message)
    return Standing(aim, accepted=False, reason=refusal.reason, message=str(refusal))


def _place_excess(excess: _Excess, work: _Pass) -> None:
    """Let a policy deny what it protects; a listener that is not there may be any of its Gateway."""
    ref = excess.policy.ref
    work.problems[ref] = excess.problems
    work.standings[ref] = excess.standing
    for aim in () if excess.shadow else excess.aims:
        meant = aim if not aim.section or exists(work.resources, aim) else PolicyTarget(aim.ref)
        work.stands.put((meant,), excess.policy, shadow=False)


def _place_broken(work: _Pass) -> None:
    """Let unreadable policies deny requests to their targets, or to every target that they may have."""
    for ref, targets in sorted(work.resources.broken_policies.items()):
        if targets is None:
            aims = all_in(work.resources, ref.namespace)
        else:
            meant = (Ref(meant_kind(each.kind), each.namespace, each.name) for each in targets)
            aims = tuple(PolicyTarget(each) for each in meant if each.kind in GROUPS)
        message = "The policy cannot be read. Correct the document."
        work.stands.put(aims, Unusable(ref=ref, reason="Invalid", message=message), shadow=False)
        work.standings[ref] = PolicyStanding(
            ref=ref,
            generation=1,
            targets=tuple(Standing(aim, accepted=False, reason="Invalid", message=message) for aim in aims),
        )


def _policies(work: _Pass, closed: str) -> Policies:
    enforced = each_once(policy for policies in work.stands.enforced.values() for policy in policies)
    shadows = each_once(policy for policies in work.stands.shadows.values() for policy in policies)
    issuers = followed_issuers([*enforced, *shadows], work.settings)
    known = issuers if not shadows else followed_issuers(enforced, work.settings)
    return Policies(
        settings=work.settings,
        attachments=MappingProxyType({attachment.aim: attachment for attachment in _guards(work)}),
        issuers=issuers,
        trust_domains=trust_domains(enforced, work.settings),
        strangers=names_of(issuers) - names_of(known),
        shadow_domains=trust_domains([*enforced, *shadows], work.settings) if shadows else frozenset(),
        closed=closed,
    )


def _guards(work: _Pass) -> Iterator[Attachment]:
    enforced, shadowed = work.stands.enforced, work.stands.shadows
    for kind, names in (("Backend", work.resources.backends), ("XBackend", work.resources.x_backends)):
        for name, backend in names.items():
            aim = PolicyTarget(Ref(kind, name.namespace, name.name))
            mcp = not is_grpc(work.resources, aim.ref)
            chosen = _chosen(backend, aim.ref, work)
            yield ensure_attachment(
                work.attachments, aim, enforced.get(aim, ()), shadowed.get(aim, ()), mcp=mcp, chosen=chosen
            )
    for ref, sections in listeners(work.resources).items():
        whole = PolicyTarget(ref)
        common, shadows = enforced.get(whole, []), shadowed.get(whole, [])
        chosen = _chosen(work.resources.gateways.get(ref.object_name), ref, work)
        yield ensure_attachment(work.attachments, whole, common, shadows, mcp=True, chosen=chosen)
        for section in sections:
            aim = PolicyTarget(ref, section)
            own = _by_age(common, enforced.get(aim, []), work)
            cast = _by_age(shadows, shadowed.get(aim, []), work)
            yield ensure_attachment(work.attachments, aim, own, cast, mcp=True, chosen=chosen)


def _chosen(target: Backend | XBackend | Gateway | None, ref: Ref, work: _Pass) -> Chosen:
    """Return the annotations of a target; the default Gateway has none."""
    if target is None or not target.metadata.annotations:
        return NOTHING_CHOSEN
    return parse_chosen(target.metadata.annotations, work.of(ref), of_backend=ref.kind in BACKENDS)


def _by_age(common: list[AnyPolicy], own: list[AnyPolicy], work: _Pass) -> list[AnyPolicy]:
    """Merge two lists, each in order of age; standings were made in that order."""
    if not own:
        return common
    ages = {ref: age for age, ref in enumerate(work.standings)}
    return sorted(each_once([*common, *own]), key=lambda policy: ages[policy.ref])
