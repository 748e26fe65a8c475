"""Plans how the policies of a target are enforced."""

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from authplane.cel.envoy.fitness import fault_in_argument
from authplane.policy.attached.attachments import Attachment, PolicyChain, rules_of
from authplane.policy.decide.evaluate_rules import BASE
from authplane.policy.mcp.base_methods import BaseMode
from authplane.policy.placement.entry_placement import ASKS, CHOSEN, place_base, place_entry
from authplane.policy.placement.native_requests import build_front
from authplane.policy.placement.placement_model import (
    CallOut,
    Choices,
    Decider,
    Native,
    Place,
    PlacedAttachment,
    PlacedEntry,
    PlacedPolicy,
    Plan,
    Sender,
    Terms,
)
from authplane.policy.placement.source_placement import ANYBODY, place_source
from authplane.policy.rules.access_settings import Placement, Settings
from authplane.policy.rules.rule_model import (
    AnyPolicy,
    AnySource,
    Asked,
    Expression,
    Oidc,
    Policy,
    Rule,
    Screen,
    Unusable,
    entry_words,
)

SEVERAL: Final = "calls one of several external services"
UNUSABLE: Final = "shares the target with an invalid policy, whose last good version may still apply"
SCREENED: Final = "shares the target with a policy that calls an external service"
EXCHANGED: Final = "shares the target with an external service that may replace the client's token"
ARGUMENTS: Final = "shares the target with a rule that reads all tool arguments"
SHADOWED: Final = "shares the target with a shadow policy that only the policy server can evaluate"
_EVERYBODY: Final = Rule(name="", source=AnySource())


def place_chain(chain: PolicyChain, settings: Settings, choices: Choices) -> Plan:
    """Say who enforces what before a target, and why; the whole never allows what the policy engine denies."""
    placer = _Placer(chain, settings, choices)
    attachments = tuple(
        PlacedAttachment(policies=tuple(map(placer.policy, attachment.policies)), composition=settings.composition)
        for attachment in chain.attachments
        if attachment.policies
    )
    rules = [rule for attachment in chain.attachments for policy in attachment.policies for rule in rules_of(policy)]
    return Plan(
        attachments=attachments,
        decider=_decider(chain, attachments),
        front=build_front(is_mcp=chain.is_mcp, reads_mcp=chain.reads_mcp),
        arguments=tuple(sorted(chain.arguments.named)),
        worded=_is_worded(rules) or (chain.is_mcp and not chain.reads_mcp),
    )


class _Placer:
    """Places the policies before one target: what some of them are matters to the others."""

    def __init__(self, chain: PolicyChain, settings: Settings, choices: Choices) -> None:
        self._way = chain
        self._settings = settings
        self._keys = choices.keys
        self._terms = Terms(placement=chain.placement, envoy=choices.envoy)
        self._asks = SEVERAL if len(set(_destinations(chain.attachments))) > 1 else ASKS
        self._general = self._obstacle(choices)

    def _obstacle(self, choices: Choices) -> str:
        """Say why nothing before this target is native, whatever the rules are."""
        if self._way.placement is Placement.CALL_OUT:
            return CHOSEN
        kinds = {type(policy) for attachment in self._way.attachments for policy in attachment.policies}
        if Unusable in kinds:
            return UNUSABLE
        if Screen in kinds:
            return SCREENED
        # Where Envoy decides, routes take the client's token away, and would take the other one too.
        if self._way.uses_tokens and any(_destinations(self._way.attachments)):
            return EXCHANGED
        return self._unread() or self._shadowed(choices)

    def _shadowed(self, choices: Choices) -> str:
        """Say why requests may not pass the policy server by: it has to evaluate a policy in shadow."""
        plans = (place_chain(each, self._settings, choices) for each in self._way.shadows)
        return SHADOWED if any(each.decider is not Decider.ENVOY for each in plans) else ""

    def _unread(self) -> str:
        """Say why Envoy may not read the bodies of MCP requests, if it would have to."""
        reads = self._way.reads_mcp and self._way.is_mcp
        arguments = self._way.arguments
        return (
            ARGUMENTS if reads and (arguments.whole is not None or any(map(fault_in_argument, arguments.named))) else ""
        )

    def policy(self, policy: AnyPolicy) -> PlacedPolicy:
        match policy:
            case Unusable(ref=ref):
                return PlacedPolicy(ref=ref, required=True)
            case Screen(ref=ref):
                # Whom its rules select is the server's to say: it asks about those it is not sure of, too.
                asked = self._entry("ExternalAuth", _EVERYBODY, ANYBODY, CallOut(self._asks))
                return PlacedPolicy(ref=ref, entries=(asked,), required=True)
            case Policy(ref=ref, rules=rules, base=base):
                entries = [each for rule in rules for each in self._rule(rule, base)]
                if base is BaseMode.ANY_SOURCE and self._way.is_mcp and not _asks_everybody(policy):
                    entries.append(self._entry(BASE, _EVERYBODY, ANYBODY, self._base()))
                return PlacedPolicy(ref=ref, entries=tuple(entries))
            case _:
                assert_never(policy)

    def _rule(self, rule: Rule, base: BaseMode) -> Iterator[PlacedEntry]:
        sender = place_source(rule.source, self._settings, self._keys)
        for index, entry in enumerate(rule.entries):
            if isinstance(entry, Asked):
                place: Place = CallOut(self._asks)
            elif isinstance(sender, CallOut):
                place = sender
            else:
                place = place_entry(entry, sender.who, self._terms, is_mcp=self._way.is_mcp)
            yield self._entry(entry_words(entry, index), rule, sender, place)
        if rule.base and base is BaseMode.MATCHED_SOURCE and self._way.is_mcp:
            yield self._entry(BASE, rule, sender, sender if isinstance(sender, CallOut) else self._base())

    def _base(self) -> Place:
        return place_base(self._terms, is_mcp=self._way.is_mcp)

    def _entry(self, entry: str, of: Rule, sender: Sender | CallOut, place: Place) -> PlacedEntry:
        if isinstance(place, Native) and isinstance(sender, CallOut):
            place = sender
        if isinstance(place, Native) and self._general:
            place = CallOut(self._general)
        return PlacedEntry(rule=of.name, entry=entry, source=of.source, sender=sender, place=place)


def _decider(chain: PolicyChain, attachments: tuple[PlacedAttachment, ...]) -> Decider:
    if not chain.guarded:
        return Decider.NOBODY
    policies = [policy for attachment in attachments for policy in attachment.policies]
    # An invalid policy denies; the policy server may still have its last good version, and the control plane not.
    left = any(
        isinstance(policy, Screen | Unusable) for attachment in chain.attachments for policy in attachment.policies
    )
    if chain.placement is Placement.CALL_OUT or left:
        return Decider.SERVER
    if not any(policy.asked for policy in policies):
        return Decider.ENVOY
    return Decider.BOTH if any(policy.native for policy in policies) else Decider.SERVER


def _destinations(attachments: tuple[Attachment, ...]) -> Iterator[object]:
    for attachment in attachments:
        for policy in attachment.policies:
            if isinstance(policy, Screen):
                yield policy.destination
            yield from (asked.destination for rule in rules_of(policy) for _, asked in rule.asked)


def _asks_everybody(policy: Policy) -> bool:
    """Tell whether an external service is called for every sender, and so for every request."""
    return any(isinstance(rule.source, AnySource) and rule.asked for rule in policy.rules)


def _is_worded(rules: Sequence[Rule]) -> bool:
    """Tell whether some denial says more than Envoy knows.

    Envoy recognises senders by the entries of their rules. A sender whose rule has none gets 403 and is not asked for a
    token, as only the policy server can tell.
    """
    said = any(isinstance(entry, Expression) and entry.message for rule in rules for entry in rule.entries)
    tokens = [rule.source for rule in rules if isinstance(rule.source, Oidc)]
    barred = any(not rule.entries and not isinstance(rule.source, AnySource) for rule in rules)
    return said or any(source.scopes for source in tokens) or (bool(tokens) and barred)
