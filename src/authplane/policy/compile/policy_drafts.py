"""Reads one policy document into rules, without looking at other documents."""

from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem, Problems
from authplane.core.values import dataclass
from authplane.policy.compile.grpc_limits import Unknown, unknown_in_rule, unknown_in_service
from authplane.policy.compile.rule_entries import SKIP_BASE, Reading, parse_entries
from authplane.policy.compile.rule_sources import parse_source
from authplane.policy.compile.service_references import parse_external
from authplane.policy.mcp.base_methods import BaseMode
from authplane.policy.rules.access_settings import Options, Settings
from authplane.policy.rules.external_service import ExternalService
from authplane.policy.rules.policy_targets import PolicyTarget, Written, parse_targets
from authplane.policy.rules.rule_model import AnySource, Asked, Entry, Rule
from authplane.resources.kinds.agentic import AccessPolicy, AccessRule, ExternalAuth, XAccessPolicy, XAccessPolicyV0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The rules of a document, and its own problems."""

    ref: Ref
    generation: int
    seniority: tuple[str, str, str]
    aims: tuple[PolicyTarget, ...]
    shadow: bool
    """The policy is evaluated but not enforced."""
    rules: tuple[Rule, ...]
    base: BaseMode
    screen: ExternalService | None
    """The service that a policy with action ExternalAuth calls."""
    asks: tuple[tuple[Path, ExternalService], ...]
    """Every external service, and where it is named."""
    unknown_to_grpc: tuple[Unknown, ...]
    """Its conditions that a gRPC server cannot check."""
    problems: tuple[Problem, ...]


_NEVER: Final = "~"
"""Comes after every time."""


def build_draft(written: Written, settings: Settings, options: Options) -> Draft:
    """Read a document, with every problem of it."""
    meta, problems = written.metadata, Problems()
    ref = _ref(written)
    reading = _reading(written, ref, settings)
    aims = parse_targets(written.spec.target_refs, meta.namespace, problems)
    screen = _screen(written, problems)
    found, asks, unknown = _rules(written, reading, settings, options, problems)
    if screen is not None:
        asks = ((("spec",), screen), *asks)
    return Draft(
        ref=ref,
        generation=meta.generation,
        seniority=seniority_of(written),
        aims=aims,
        shadow=is_shadow(written),
        rules=found,
        base=_base_mode(written),
        screen=screen,
        asks=asks,
        unknown_to_grpc=(*unknown_in_service(("spec",), screen), *unknown),
        problems=tuple(problems),
    )


def build_excess(written: Written, most: int) -> Draft:
    """Read only the targets of a document, since its namespace already has ``most`` older policies."""
    meta, problems = written.metadata, Problems()
    aims = parse_targets(written.spec.target_refs, meta.namespace, problems)
    with problems.at("metadata", "namespace"):
        effect = "is not evaluated" if is_shadow(written) else "denies all requests"
        said = (
            f"Namespace {meta.namespace!r} already has {most} policies, which is the maximum, so this policy {effect}."
        )
        problems.add("LimitPerNamespaceExceeded", f"{said} Remove or merge policies.")
    return Draft(
        ref=_ref(written),
        generation=meta.generation,
        seniority=seniority_of(written),
        aims=aims,
        shadow=is_shadow(written),
        rules=(),
        base=_base_mode(written),
        screen=None,
        asks=(),
        unknown_to_grpc=(),
        problems=tuple(problems),
    )


def seniority_of(written: Written) -> tuple[str, str, str]:
    """Return the sort key of a policy: the oldest first, then by name."""
    meta, ref = written.metadata, _ref(written)
    return (meta.creation_timestamp or _NEVER, f"{meta.namespace}/{meta.name}", ref.kind)


def is_shadow(written: Written) -> bool:
    """Tell whether a policy is in shadow: it neither grants nor denies."""
    return written.spec.mode == "Shadow"


def _ref(written: Written) -> Ref:
    kind = "AccessPolicy" if isinstance(written, AccessPolicy) else "XAccessPolicy"
    return Ref(kind, written.metadata.namespace, written.metadata.name)


def _reading(written: Written, ref: Ref, settings: Settings) -> Reading:
    if isinstance(written, XAccessPolicy):
        return Reading(ref=ref, types=frozenset({"Inline", "CEL"}), missing_grants=True, strict=settings.strict)
    return Reading(ref=ref, strict=settings.strict)


def _base_mode(written: Written) -> BaseMode:
    match written:
        case AccessPolicy():
            return BaseMode.MATCHED_SOURCE
        case XAccessPolicyV0():
            return BaseMode.ANY_SOURCE
        case XAccessPolicy():
            return BaseMode.EXPLICIT


def _screen(written: Written, problems: Problems) -> ExternalService | None:
    """Read the external service of a policy that has one as its action."""
    if not isinstance(written, XAccessPolicy):
        return None
    given: ExternalAuth | None = written.spec.external_auth
    with problems.at("spec"):
        if (written.spec.action == "ExternalAuth") == (given is None):
            said = "requires 'externalAuth'. Add it." if given is None else "cannot have 'externalAuth'. Remove it."
            problems.add("Invalid", f"Action {written.spec.action} {said}")
        return None if given is None else parse_external(given, written.metadata.namespace, problems)


def _rules(
    written: Written, reading: Reading, settings: Settings, options: Options, problems: Problems
) -> tuple[tuple[Rule, ...], tuple[tuple[Path, ExternalService], ...], tuple[Unknown, ...]]:
    found: list[Rule] = []
    asks: list[tuple[Path, ExternalService]] = []
    unknown: list[Unknown] = []
    selects = isinstance(written, XAccessPolicy) and written.spec.action == "ExternalAuth"
    with problems.at("spec", "rules"):
        if not written.spec.rules and not selects:
            problems.warn("GrantsNothing", "The policy has no rules, so it denies all requests. Add a rule.")
        names = _names(written.spec.rules, problems)
        for index, (name, rule) in enumerate(zip(names, written.spec.rules, strict=True)):
            with problems.at(index):
                source = parse_source(rule.source, reading.ref.namespace, settings, options, problems)
                entries = parse_entries(rule, reading, problems)
            asks += _asks(("spec", "rules", index), rule, entries)
            unknown += unknown_in_rule(("spec", "rules", index), rule, entries)
            if source is not None:
                base = _grants_base(rule, entries, everybody=isinstance(source, AnySource))
                found.append(Rule(name=name, source=source, entries=entries, base=base))
    return tuple(found), tuple(asks), tuple(unknown)


def _names(rules: tuple[AccessRule, ...], problems: Problems) -> list[str]:
    """Return a name for each rule, all different."""
    taken = {rule.name for rule in rules}
    names: list[str] = []
    for index, rule in enumerate(rules):
        name = rule.name or f"rule-{index}"
        while rule.name is None and (name in taken or name in names):
            name += "-unnamed"
        if name in names:
            with problems.at(index, "name"):
                problems.add("Invalid", f"Another rule has the name {name!r}. Rename one of them.")
        names.append(name)
    return names


def _asks(path: Path, rule: AccessRule, entries: tuple[Entry, ...]) -> list[tuple[Path, ExternalService]]:
    """Return the services that a rule names; entries that have a problem are not among ``entries``."""
    services = [each.destination for each in entries if isinstance(each, Asked)]
    places = [index for index, each in enumerate(rule.authorization or ()) if each.external_auth is not None]
    if len(services) != len(places):
        return []  # there is an error, and the policy is not used
    return [
        ((*path, "authorization", place), service)
        for place, service in zip(places, services, strict=True)
        if isinstance(service, ExternalService)
    ]


def _grants_base(rule: AccessRule, entries: tuple[Entry, ...], *, everybody: bool) -> bool:
    """Tell whether the source of a rule may use the base protocol because it is granted something.

    A rule for every source that calls an external service leaves every request to it, also those of the base protocol.
    """
    if not entries or (everybody and any(isinstance(entry, Asked) for entry in entries)):
        return False
    options = [each.mcp.mcp_base_protocol_methods_option if each.mcp else "" for each in rule.authorization or ()]
    return not options or any(option != SKIP_BASE for option in options)
