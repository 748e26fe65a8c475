"""All policies at once: from documents to what stands before each target, and what is to be said of each policy."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from authplane.base.names import Ref
from authplane.base.problems import Problem, Problems, Severity
from authplane.policy.access.choosing import NOTHING_CHOSEN, Chosen, parse_chosen
from authplane.policy.access.drafts import Draft, Written, build_draft, build_excess
from authplane.policy.access.external import Destination, ExternalService, Missing
from authplane.policy.access.guards import Guard, Policies, build_guard, rules_of, trust_domains
from authplane.policy.access.model import AnyPolicy, Asked, Oidc, Policy, Rule, Screen, Unusable, issuers_of
from authplane.policy.access.quota import over_quota
from authplane.policy.access.references import resolve
from authplane.policy.access.settings import Options, Settings, configuration_ref, issuer_settings, read_settings
from authplane.policy.access.targets import GROUPS, Aim, absence, all_in, exists, is_grpc, listeners, meant_kind
from authplane.policy.backend_tls import BackendTlsPolicies, read_backend_tls
from authplane.policy.tokens.issuer import Issuer
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import Backend, XBackend
from authplane.resources.kinds.gateway import Gateway

UNRESOLVED: Final = frozenset({"RefNotPermitted", "BackendNotFound", "IssuerUnreachable"})
"""Problems of what a policy refers to: the policy holds, and what depends on them is not granted."""
STATUS_FULL: Final = "StatusFull"
CONTROLLER: Final = "authplane.dev/controller"
"""Who we are in the status of a policy."""
MOST_ANCESTORS: Final = 16


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with a policy at one of its targets."""

    aim: Aim
    accepted: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStanding:
    """How it stands with a policy."""

    ref: Ref
    generation: int
    targets: tuple[Standing, ...]
    unresolved: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    issuers: tuple[str, ...] = ()
    """The addresses of the issuers whose tokens are of use to it."""
    rules: tuple[str, ...] = ()


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
    """What one pass has come to."""

    resources: Resources
    settings: Settings
    options: Options
    tls: BackendTlsPolicies
    problems: dict[Ref, Problems] = field(default_factory=dict)
    before: dict[Aim, list[AnyPolicy]] = field(default_factory=dict)
    standings: dict[Ref, PolicyStanding] = field(default_factory=dict)
    taken: Counter[Aim] = field(default_factory=Counter)
    screens: Counter[Aim] = field(default_factory=Counter)

    def of(self, ref: Ref) -> Problems:
        return self.problems.setdefault(ref, Problems())

    def put(self, aims: Iterable[Aim], policy: AnyPolicy) -> None:
        for aim in dict.fromkeys(aims):
            self.before.setdefault(aim, []).append(policy)


@dataclass(frozen=True, slots=True)
class _Excess:
    """A policy that its namespace has no room for, and what is said of it, which takes no time in later passes."""

    aims: tuple[Aim, ...]
    problems: Problems
    policy: Unusable
    standing: PolicyStanding


class PolicyCompiler:
    """Compiles generation after generation; a document that has not changed is not read again."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._settings: Settings | None = None
        self._drafts: dict[Ref, tuple[Written, Draft | _Excess]] = {}

    def compile(self, resources: Resources) -> Compiled:
        """Compile what is in force.

        A policy that cannot be enforced as it was meant denies what it was meant to protect.
        """
        configuration = Problems()
        settings = read_settings(resources, self._options, configuration)
        tls = read_backend_tls(resources)
        work = _Pass(resources, settings or Settings(), self._options, tls)
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
                work, resources.doubt if settings is not None else "the AuthplaneConfiguration cannot be used"
            ),
            problems=MappingProxyType({ref: tuple(found) for ref, found in sorted(work.problems.items()) if found}),
            standings=MappingProxyType(dict(sorted(work.standings.items()))),
            tls=tls,
        )

    def _draft_all(self, resources: Resources, settings: Settings) -> Iterator[Draft | _Excess]:
        known = self._drafts if settings == self._settings else {}
        self._settings, self._drafts = settings, {}
        tables: tuple[tuple[str, Iterable[Written]], ...] = (
            ("AccessPolicy", resources.access_policies.values()),
            ("XAccessPolicy", resources.x_access_policies.values()),
        )
        excess = over_quota(resources, self._options.most_per_namespace)
        for kind, documents in tables:
            for written in documents:
                ref = Ref(kind, written.metadata.namespace, written.metadata.name)
                over = ref in excess
                before = known.get(ref)
                if before is None or before[0] is not written or isinstance(before[1], _Excess) is not over:
                    draft = build_draft(written, settings, self._options) if not over else self._excess(written)
                    before = (written, draft)
                self._drafts[ref] = before
                yield before[1]

    def _excess(self, written: Written) -> _Excess:
        draft = build_excess(written, self._options.most_per_namespace)
        problem = draft.problems[-1]
        standing = PolicyStanding(
            ref=draft.ref,
            generation=draft.generation,
            targets=tuple(
                Standing(aim, accepted=False, reason=problem.reason, message=str(problem)) for aim in draft.aims
            ),
        )
        problems = Problems()
        problems.extend(draft.problems)
        policy = Unusable(ref=draft.ref, reason=problem.reason, message=problem.message)
        return _Excess(draft.aims, problems, policy, standing)


def compile_policies(resources: Resources, options: Options | None = None) -> Compiled:
    """Compile once."""
    return PolicyCompiler(options).compile(resources)


def _place(draft: Draft, work: _Pass) -> None:
    """Put a policy before its targets, or what denies in its place."""
    problems = work.of(draft.ref)
    problems.extend(draft.problems)
    policy = _resolved(draft, work, problems)
    present = [aim for aim in draft.aims if exists(work.resources, aim)]
    if any(is_grpc(work.resources, aim.ref) for aim in present):
        for path, why in draft.unknown_to_grpc:
            with problems.at(*path):
                problems.add("NotKnownToServer", why)
    refusal = _refusal(draft, present, work, problems)
    if refusal is None:
        work.taken.update(present)
        work.screens.update(present if isinstance(policy, Screen) else ())
        work.put(present, policy)
    else:
        # Whoever names a listener that is not there meant some part of that Gateway.
        aims = (aim if exists(work.resources, aim) else Aim(aim.ref) for aim in draft.aims)
        work.put(aims, Unusable(ref=draft.ref, reason=refusal.reason, message=refusal.message))
    work.standings[draft.ref] = PolicyStanding(
        ref=draft.ref,
        generation=draft.generation,
        targets=tuple(_standing(aim, refusal, draft, work, problems) for aim in draft.aims),
        unresolved=tuple(each for each in problems.errors if each.reason in UNRESOLVED),
        warnings=problems.warnings,
        issuers=tuple(dict.fromkeys(url for rule in draft.rules for url in sorted(issuers_of(rule.source)))),
        rules=tuple(rule.name for rule in draft.rules),
    )


def _refusal(draft: Draft, present: list[Aim], work: _Pass, problems: Problems) -> Problem | None:
    """Return why a policy is not accepted at any of its targets; None if it is."""
    wrong = [each for each in problems.errors if each.reason not in UNRESOLVED]
    if wrong:
        return wrong[0]
    if _is_full(draft, work.resources):
        message = "the policy's status has no room for its targets beside the entries of others, so it denies all"
        problems.add(STATUS_FULL, message)
        return problems.errors[-1]
    limits = [(work.taken, work.options.most_per_target, "policies")]
    if draft.screen is not None:
        limits.append((work.screens, work.options.most_screens_per_target, "policies with the action ExternalAuth"))
    for counted, most, what in limits:
        crowded = [aim for aim in present if counted[aim] >= most]
        if crowded:
            with problems.at("spec", "targetRefs"):
                problems.add("LimitPerTargetExceeded", f"{crowded[0]} has {most} older {what}; so it denies everything")
            return problems.errors[-1]
    return None


def _is_full(draft: Draft, resources: Resources) -> bool:
    """Tell whether our entries would be too many for a status that others write into as well."""
    others = sum(each != CONTROLLER for each in resources.status_controllers.get(draft.ref, ()))
    return others + len(set(draft.aims)) > MOST_ANCESTORS


def _standing(aim: Aim, refusal: Problem | None, draft: Draft, work: _Pass, problems: Problems) -> Standing:
    if not exists(work.resources, aim):
        message = absence(work.resources, aim)
        index = draft.aims.index(aim)
        if aim.ref.kind in GROUPS:
            with problems.at("spec", "targetRefs", index):
                problems.warn("TargetNotFound", message)
        if aim.section and exists(work.resources, Aim(aim.ref)):
            work.put([Aim(aim.ref)], Unusable(ref=draft.ref, reason="TargetNotFound", message=message))
        if refusal is None:
            return Standing(aim, accepted=False, reason="TargetNotFound", message=message)
    if refusal is None:
        return Standing(aim, accepted=True, reason="Accepted", message="the policy is enforced")
    return Standing(aim, accepted=False, reason=refusal.reason, message=str(refusal))


def _resolved(draft: Draft, work: _Pass, problems: Problems) -> Policy | Screen:
    """Look up what a policy refers to."""
    found: dict[ExternalService, Destination] = {}
    for path, service in draft.asks:
        with problems.at(*path):
            found[service] = resolve(work.resources, work.tls, draft.ref, service, problems)
    rules = tuple(_with_destinations(rule, found) for rule in draft.rules) if found else draft.rules
    if draft.screen is None:
        return Policy(ref=draft.ref, rules=rules, base=draft.base)
    return Screen(ref=draft.ref, rules=rules, destination=found.get(draft.screen, draft.screen))


def _with_destinations(rule: Rule, found: Mapping[ExternalService, Destination]) -> Rule:
    if not rule.asked:
        return rule
    entries = tuple(
        Asked(found.get(each.destination, each.destination))
        if isinstance(each, Asked) and not isinstance(each.destination, Missing)
        else each
        for each in rule.entries
    )
    return replace(rule, entries=entries)


def _place_excess(excess: _Excess, work: _Pass) -> None:
    """Let a policy deny what it protects; a listener that is not there may be any of its Gateway."""
    ref = excess.policy.ref
    work.problems[ref] = excess.problems
    work.standings[ref] = excess.standing
    for aim in excess.aims:
        work.put((aim if not aim.section or exists(work.resources, aim) else Aim(aim.ref),), excess.policy)


def _place_broken(work: _Pass) -> None:
    """Let policies that cannot even be read deny what they were meant for, or all that they can have been meant for."""
    for ref, targets in sorted(work.resources.broken_policies.items()):
        if targets is None:
            aims = all_in(work.resources, ref.namespace)
        else:
            meant = (Ref(meant_kind(each.kind), each.namespace, each.name) for each in targets)
            aims = tuple(Aim(each) for each in meant if each.kind in GROUPS)
        message = "the policy cannot be read"
        work.put(aims, Unusable(ref=ref, reason="Invalid", message=message))
        work.standings[ref] = PolicyStanding(
            ref=ref,
            generation=1,
            targets=tuple(Standing(aim, accepted=False, reason="Invalid", message=message) for aim in aims),
        )


def _policies(work: _Pass, closed: str) -> Policies:
    everything = _each_once(policy for policies in work.before.values() for policy in policies)
    return Policies(
        settings=work.settings,
        guards=MappingProxyType(dict(_guards(work))),
        issuers=_issuers(everything, work.settings),
        trust_domains=trust_domains(everything, work.settings),
        closed=closed,
    )


def _guards(work: _Pass) -> Iterator[tuple[Aim, Guard]]:
    for kind, names in (("Backend", work.resources.backends), ("XBackend", work.resources.x_backends)):
        for name, backend in names.items():
            aim = Aim(Ref(kind, name.namespace, name.name))
            mcp = not is_grpc(work.resources, aim.ref)
            yield aim, build_guard(aim, work.before.get(aim, ()), mcp=mcp, chosen=_chosen(backend, aim.ref, work))
    for ref, sections in listeners(work.resources).items():
        whole = Aim(ref)
        common = work.before.get(whole, [])
        chosen = _chosen(work.resources.gateways.get(ref.object_name), ref, work)
        yield whole, build_guard(whole, common, chosen=chosen)
        for section in sections:
            aim = Aim(ref, section)
            own = work.before.get(aim, [])
            yield aim, build_guard(aim, _by_age(common, own, work) if own else common, chosen=chosen)


def _chosen(target: Backend | XBackend | Gateway | None, ref: Ref, work: _Pass) -> Chosen:
    """Return what a target chooses; the Gateway that nobody wrote chooses nothing."""
    if target is None or not target.metadata.annotations:
        return NOTHING_CHOSEN
    return parse_chosen(target.metadata.annotations, work.of(ref))


def _by_age(common: list[AnyPolicy], own: list[AnyPolicy], work: _Pass) -> list[AnyPolicy]:
    """Merge two lists, each in order of age; standings were made in that order."""
    ages = {ref: age for age, ref in enumerate(work.standings)}
    return sorted(_each_once([*common, *own]), key=lambda policy: ages[policy.ref])


def _each_once(policies: Iterable[AnyPolicy]) -> list[AnyPolicy]:
    # By identity: to compare whole policies would take as long as to read them.
    return list({id(policy): policy for policy in policies}.values())


def _issuers(policies: Iterable[AnyPolicy], settings: Settings) -> tuple[Issuer, ...]:
    """Return the issuers to follow, one for each address; the name without a scheme counts where it is used."""
    sources = [rule.source for policy in policies for rule in rules_of(policy)]
    useful = frozenset[str]().union(*(issuers_of(source) for source in sources))
    urls = [each.issuer for each in settings.workloads.keyed if each.issuer.url in useful]
    urls += [source.issuer for source in sources if isinstance(source, Oidc)]
    found: dict[str, Issuer] = {}
    for url in urls:
        given = issuer_settings(settings, url)
        if not given.unusable and (url.url not in found or url.literal != url.url):
            found[url.url] = Issuer(url=url, reach=given.reach, demands=given.demands)
    return tuple(found[url] for url in sorted(found))


def errors_of(compiled: Compiled) -> Iterator[tuple[Ref, Problem]]:
    """Yield the errors, by resource."""
    for ref, problems in compiled.problems.items():
        yield from ((ref, problem) for problem in problems if problem.severity is Severity.ERROR)
