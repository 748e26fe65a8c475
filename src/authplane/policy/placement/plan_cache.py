"""Caches plans: the policies of most targets do not change from one pass to the next."""

from functools import partial

from authplane.core.memo import Held, Same
from authplane.policy.attached.attachments import PolicyChain
from authplane.policy.placement.placement_model import Choices, Plan
from authplane.policy.placement.placement_plan import place_chain
from authplane.policy.rules.access_settings import Settings


class Plans:
    """Makes plans and caches those in use: one plan serves every target with the same policies."""

    def __init__(self, held: Held[object, Plan] | None = None) -> None:
        self._held: Held[object, Plan] = Held() if held is None else held

    def ensure(self, chain: PolicyChain, settings: Settings, choices: Choices) -> Plan:
        """Return what `place_chain` does; the same policies and settings give the same object."""
        attachments = (
            *chain.attachments,
            *(attachment for shadow in chain.shadows for attachment in shadow.attachments),
        )
        policies = (each for attachment in attachments for each in attachment.policies)
        counts = (len(chain.attachments), *(len(attachment.policies) for attachment in attachments))
        chosen = (chain.placement, choices)
        key = (Same(settings, *policies), counts, chain.guarded, chain.is_mcp, chain.reads_mcp, chosen)
        return self._held.ensure(key, partial(place_chain, chain, settings, choices))
