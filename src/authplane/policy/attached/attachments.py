"""The policies that apply to each target."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.cel.syntax.read_members import NOTHING, Members, join_members
from authplane.core.memo import Memo, Same
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer import Issuer
from authplane.policy.identity.trusted import Trusted
from authplane.policy.identity.workload_identity.spiffe import SpiffeId, parse_spiffe_id
from authplane.policy.mcp.base_methods import BaseMode
from authplane.policy.rules.access_settings import Placement, Settings
from authplane.policy.rules.policy_targets import BACKENDS, PolicyTarget
from authplane.policy.rules.rule_model import (
    Account,
    AnyPolicy,
    Oidc,
    Policy,
    Rule,
    Screen,
    Spiffe,
    Unusable,
    arguments_of,
    issuers_of,
    reads_mcp,
)
from authplane.policy.rules.target_choices import NOTHING_CHOSEN, Chosen, pick_strictest
from authplane.policy.verdicts.allowed_memory import Memory, Proof, proof_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The policies of a backend, a Gateway or a listener, in the order of evaluation.

    Policies that deny everything come first, so that no service is called in vain; then those that call an external
    service for their senders; then the others, the oldest first.
    """

    aim: PolicyTarget
    policies: tuple[AnyPolicy, ...] = ()
    """Those that are enforced; all else that an attachment says is about them."""
    shadows: tuple[AnyPolicy, ...] = ()
    """Policies that are evaluated but not enforced."""
    uses_tokens: bool = False
    """Some rule looks at the client's token, which therefore goes no further."""
    reads_mcp: bool = False
    """Some rule depends on what an MCP request says."""
    arguments: Members = NOTHING
    """What rules read of the arguments of calls."""
    issuers: tuple[str, ...] = ()
    """The addresses of the issuers whose tokens are of use here, in order."""
    scopes: tuple[str, ...] = ()
    """The scopes that rules require, in order."""
    accounts: bool = False
    """Some rule is for a ServiceAccount."""
    mcp: bool = True
    """The target, if it is a backend, is an MCP server; otherwise it is a gRPC server."""
    placement: Placement | None = None
    """What the target chooses itself, if it does."""


def build_attachment(
    aim: PolicyTarget,
    policies: Iterable[AnyPolicy],
    shadows: Iterable[AnyPolicy] = (),
    *,
    mcp: bool = True,
    chosen: Chosen = NOTHING_CHOSEN,
) -> Attachment:
    """Put the policies of a target in order; those of one kind keep theirs."""
    ordered = tuple(sorted(policies, key=_turn))
    rules = tuple(rule for policy in ordered for rule in rules_of(policy))
    oidc = tuple(rule.source for rule in rules if isinstance(rule.source, Oidc))
    return Attachment(
        aim=aim,
        policies=ordered,
        shadows=tuple(sorted(shadows, key=_turn)),
        uses_tokens=any(issuers_of(rule.source) for rule in rules),
        reads_mcp=any(_reads_mcp(policy) for policy in ordered),
        arguments=join_members(arguments_of(entry) for rule in rules for entry in rule.entries),
        issuers=tuple(dict.fromkeys(source.issuer.url for source in oidc)),
        scopes=tuple(dict.fromkeys(scope for source in oidc for scope in source.scopes)),
        accounts=any(isinstance(rule.source, Account) for rule in rules),
        mcp=mcp,
        placement=chosen.placement,
    )


AttachmentMemo: TypeAlias = Memo[PolicyTarget, Attachment]


def ensure_attachment(  # noqa: PLR0913 (all that one is made of)
    memo: AttachmentMemo,
    aim: PolicyTarget,
    policies: Sequence[AnyPolicy],
    shadows: Sequence[AnyPolicy],
    *,
    mcp: bool,
    chosen: Chosen,
) -> Attachment:
    """Return what `build_attachment` does; the same policies give the same object."""
    inputs = (mcp, chosen, _compared(policies), _compared(shadows))
    return memo.ensure(aim, inputs, partial(build_attachment, aim, policies, shadows, mcp=mcp, chosen=chosen))


def _compared(policies: Sequence[AnyPolicy]) -> object:
    """Compare whole policies by identity, as all else would take too long; those that deny everything say little."""
    if any(isinstance(each, Unusable) for each in policies):
        return [each if isinstance(each, Unusable) else Same(each) for each in policies]
    return Same(*policies)


def rules_of(policy: AnyPolicy) -> tuple[Rule, ...]:
    """Return the rules of a policy; one that cannot be used has none."""
    return () if isinstance(policy, Unusable) else policy.rules


def trust_domains(policies: Iterable[AnyPolicy], settings: Settings) -> frozenset[str]:
    """Return the trust domains whose ids may matter: ours, and those that rules name."""
    found = {settings.trust_domain}
    for policy in policies:
        for rule in rules_of(policy):
            ids = rule.source.ids if isinstance(rule.source, Spiffe) else ()
            parsed = (parse_spiffe_id(each) for each in ids)
            found.update(each.trust_domain for each in parsed if isinstance(each, SpiffeId))
    return frozenset(found)


def uses_certificates(attachment: Attachment) -> bool:
    """Tell whether some rule looks at the certificate that a client shows."""
    sources = (rule.source for policy in attachment.policies for rule in rules_of(policy))
    return any(isinstance(source, Spiffe | Account) for source in sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTarget:
    """Where a request goes: through a Gateway's listener, to a backend; one of the two may be missing."""

    backend: Ref | None = None
    gateway: Ref | None = None
    section: str = ""


def attachments_before(
    target: RequestTarget, known: Mapping[PolicyTarget, Attachment]
) -> tuple[Attachment, ...] | None:
    """Return the attachments before a target, from which its chain follows; None for a target that is not known."""
    aims = [] if target.gateway is None else [PolicyTarget(target.gateway, target.section)]
    if target.backend is not None:
        aims.append(PolicyTarget(target.backend))
    attachments = tuple(attachment for aim in aims if (attachment := known.get(aim)) is not None)
    return attachments if aims and len(attachments) == len(aims) else None


@dataclass(frozen=True, slots=True)
class PolicyChain:
    """All policies before a target: those of the Gateway, then those of the backend."""

    attachments: tuple[Attachment, ...]
    guarded: bool
    uses_tokens: bool
    reads_mcp: bool
    is_mcp: bool
    """The way leads to an MCP server."""
    proof: Proof | None
    """What alone of the sender decides here, if besides it only the tool or the method does; else None."""
    placement: Placement = Placement.AUTO
    """Who may decide: of what the targets on the way choose, the stricter."""
    arguments: Members = NOTHING
    """What rules read of the arguments of calls."""
    shadows: tuple["PolicyChain", ...] = ()
    """For each shadow policy, a chain in which it is enforced alone."""
    memory: Memory = field(default_factory=Memory, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Everything that decisions need, by target: policies of one target cost nothing for another."""

    settings: Settings = field(default_factory=Settings)
    attachments: Mapping[PolicyTarget, Attachment] = field(default_factory=lambda: MappingProxyType({}))
    """For every backend, every Gateway and every listener that there is."""
    issuers: tuple[Issuer, ...] = ()
    """The issuers whose tokens some policy accepts. Keys are fetched from these only."""
    trust_domains: frozenset[str] = frozenset()
    strangers: frozenset[str] = frozenset()
    """The ``iss`` of issuers that only policies in shadow name."""
    shadow_domains: frozenset[str] = frozenset()
    """The trust domains whose ids may matter to policies in shadow."""
    closed: str = ""
    """Why nothing can be allowed; empty if something can."""
    trusted: Trusted = field(init=False, repr=False, compare=False)
    """Whom what proves workloads may come from."""
    _ways: dict[RequestTarget, PolicyChain] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        trusted = Trusted(
            self.trust_domains,
            self.settings.trust_domain,
            self.settings.workloads,
            strangers=self.strangers,
            shadow_domains=self.shadow_domains,
        )
        object.__setattr__(self, "trusted", trusted)

    def reviews(self, target: RequestTarget) -> bool:
        """Tell whether a sender can be identified at a target by a token that the cluster reviews."""
        if self.closed or not self.settings.workloads.reviewed:
            return False
        chain = self.chain(target)
        return chain is not None and any(attachment.accounts for attachment in chain.attachments)

    def chain(self, target: RequestTarget) -> PolicyChain | None:
        """Return the policies of a target; None for an unknown target. Built once for each."""
        known = self._ways.get(target)
        if known is not None:
            return known
        attachments = attachments_before(target, self.attachments)
        if attachments is None:
            return None
        is_mcp = target.backend is not None and target.backend.kind in BACKENDS and attachments[-1].mcp
        reads_mcp = any(attachment.reads_mcp for attachment in attachments)
        chain = PolicyChain(
            attachments=attachments,
            guarded=any(attachment.policies for attachment in attachments),
            uses_tokens=any(attachment.uses_tokens for attachment in attachments),
            reads_mcp=reads_mcp,
            is_mcp=is_mcp,
            proof=proof_of(policy for attachment in attachments for policy in attachment.policies)
            if is_mcp and reads_mcp
            else None,
            placement=pick_strictest((each.placement for each in attachments), self.settings.placement),
            arguments=join_members(attachment.arguments for attachment in attachments),
        )
        shadows = tuple(
            _alone(policy, attachment, chain) for attachment in attachments for policy in attachment.shadows
        )
        chain = self._ways[target] = replace(chain, shadows=shadows) if shadows else chain
        return chain


NO_POLICIES: Final = Policies(closed="the policies are not loaded yet")


def _alone(policy: AnyPolicy, attachment: Attachment, chain: PolicyChain) -> PolicyChain:
    """Return a chain with one policy alone, in the place that its attachment has in another chain."""
    chosen = Chosen(placement=attachment.placement)
    alone = build_attachment(attachment.aim, (policy,), mcp=attachment.mcp, chosen=chosen)
    return replace(
        chain,
        attachments=(alone,),
        guarded=True,
        uses_tokens=alone.uses_tokens,
        reads_mcp=alone.reads_mcp,
        proof=None,
        arguments=alone.arguments,
        memory=Memory(),
    )


def _turn(policy: AnyPolicy) -> int:
    match policy:
        case Unusable():
            return 0
        case Screen():
            return 1
        case Policy():
            return 2


def _reads_mcp(policy: AnyPolicy) -> bool:
    entries = any(reads_mcp(entry) for rule in rules_of(policy) for entry in rule.entries)
    if not isinstance(policy, Policy):
        return entries
    return entries or policy.base is BaseMode.ANY_SOURCE or any(rule.base for rule in policy.rules)
