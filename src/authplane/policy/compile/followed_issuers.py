"""The issuers whose tokens policies accept."""

from collections.abc import Iterable

from authplane.policy.attached.attachments import rules_of
from authplane.policy.identity.tokens.issuer import Issuer
from authplane.policy.rules.access_settings import Settings, issuer_settings
from authplane.policy.rules.rule_model import AnyPolicy, Oidc, issuers_of


def followed_issuers(policies: Iterable[AnyPolicy], settings: Settings) -> tuple[Issuer, ...]:
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


def names_of(issuers: Iterable[Issuer]) -> frozenset[str]:
    """Return all ``iss`` values of issuers."""
    return frozenset(name for issuer in issuers for name in issuer.url.names())
