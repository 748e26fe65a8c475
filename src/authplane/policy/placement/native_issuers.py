"""Whose tokens Envoy may have to verify."""

from collections.abc import Iterator

from authplane.policy.attached.attachments import Attachment, Policies, rules_of
from authplane.policy.identity.tokens.issuer import Issuer
from authplane.policy.placement.placement_model import Sender
from authplane.policy.placement.source_placement import place_source
from authplane.policy.rules.access_settings import Placement, Settings
from authplane.policy.rules.rule_model import Oidc, Screen


def native_issuers(policies: Policies) -> tuple[Issuer, ...]:
    """Return the issuers whose keys Envoy uses; only the policy server needs the keys of the others.

    An issuer may be among them whose rules turn out to be the policy server's, and none is missing.
    """
    if policies.closed:
        return ()
    settings = policies.settings
    useful: set[str] = set()
    for attachment in policies.attachments.values():
        if _is_left_to_the_server(attachment, settings):
            continue
        for source in _sources(attachment):
            # To place a source takes long, and one that is native suffices.
            if source.issuer.url not in useful and isinstance(place_source(source, settings), Sender):
                useful.add(source.issuer.url)
    return tuple(each for each in policies.issuers if each.url.url in useful)


def _is_left_to_the_server(attachment: Attachment, settings: Settings) -> bool:
    """Tell whether nothing is native in any chain that has an attachment."""
    if (attachment.placement or settings.placement) is Placement.CALL_OUT:
        return True
    return any(isinstance(policy, Screen) for policy in attachment.policies)


def _sources(attachment: Attachment) -> Iterator[Oidc]:
    # What Envoy cannot evaluate of policies in shadow leaves all others to the policy server.
    for policy in (*attachment.policies, *attachment.shadows):
        yield from (rule.source for rule in rules_of(policy) if isinstance(rule.source, Oidc))
