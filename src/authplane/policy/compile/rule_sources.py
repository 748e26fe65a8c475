"""Reads the sources of rules: who may send a request."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.core.problems import Problems
from authplane.policy.identity.tokens.issuer_url import parse_issuer_url
from authplane.policy.identity.workload_identity.service_account import parse_account, spiffe_id_of
from authplane.policy.identity.workload_identity.spiffe import NotSpiffe, parse_spiffe_id
from authplane.policy.mcp.challenge import fit_scope
from authplane.policy.rules.access_settings import Options, Settings, issuer_settings
from authplane.policy.rules.rule_model import Account, AnySource, Oidc, Source, Spiffe
from authplane.resources.kinds.agentic import OidcSource, ServiceAccountSource
from authplane.resources.kinds.agentic import Source as Written

_MEMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {"SPIFFE": "spiffe", "ServiceAccount": "serviceAccount", "OIDC": "oidc"}
)


def parse_source(
    written: Written | None, namespace: str, settings: Settings, options: Options, problems: Problems
) -> Source | None:
    """Read a source; None after a problem. A rule without a source applies to every sender."""
    if written is None:
        return AnySource()
    with problems.at("source"):
        given = {"spiffe": written.spiffe, "serviceAccount": written.service_account, "oidc": written.oidc}
        wanted = _MEMBERS[written.type]
        for name, value in given.items():
            if value and name != wanted:
                with problems.at(name):
                    problems.add("InvalidSource", f"A source of type {written.type} cannot have {name!r}. Remove it.")
                return None
        if written.type == "SPIFFE" and written.spiffe:
            return _spiffe(written.spiffe, settings, problems)
        if written.type == "ServiceAccount" and written.service_account is not None:
            return _account(written.service_account, namespace, settings, problems)
        if written.type == "OIDC" and written.oidc is not None:
            return _oidc(written.oidc, settings, options, problems)
        problems.add("InvalidSource", f"A source of type {written.type} requires {wanted!r}. Add it.")
        return None


def _spiffe(written: tuple[str, ...], settings: Settings, problems: Problems) -> Spiffe | None:
    ids = []
    for index, text in enumerate(written):
        with problems.at("spiffe", index):
            found = parse_spiffe_id(text)
            if isinstance(found, NotSpiffe):
                said = f"{text!r} is not a SPIFFE ID: {found.why}. Use spiffe://<trust domain>/<path>."
                problems.add("InvalidSource", said)
                continue
            if not found.path:
                said = f"{text!r} has no path, so no workload can have this ID. Add the path of a workload."
                problems.warn("SourceNeverMatches", said)
            ids.append(found)
    if len(ids) != len(written):
        return None
    issuers = frozenset[str]().union(*(settings.workloads.issuers_for(each) for each in ids))
    return Spiffe(frozenset(str(each) for each in ids), issuers)


def _account(written: ServiceAccountSource, namespace: str, settings: Settings, problems: Problems) -> Account | None:
    account = parse_account(written.name, written.namespace, namespace)
    if account is None:
        with problems.at("serviceAccount"):
            said = f"'{written.namespace}/{written.name}' is not the name of a ServiceAccount."
            problems.add("InvalidSource", f"{said} Use lower-case letters, digits and hyphens.")
        return None
    spiffe_id, workloads = spiffe_id_of(account, settings.trust_domain), settings.workloads
    return Account(account, str(spiffe_id), workloads.cluster_issuers() | workloads.issuers_for(spiffe_id))


def _oidc(written: OidcSource, settings: Settings, options: Options, problems: Problems) -> Oidc | None:
    before = problems.error_count
    with problems.at("oidc"):
        with problems.at("issuerUrl"):
            url = parse_issuer_url(written.issuer_url, problems, allow_http=options.allow_http_issuers)
        with problems.at("audiences"):
            if not written.audiences:
                said = "Without audiences, the policy accepts tokens that were issued for other servers. Set audiences."
                report = problems.add if settings.strict else problems.warn
                report("AudiencesMissing", said)
            if "" in written.audiences:
                problems.add("InvalidSource", "An audience is empty. Remove it.")
        for index, scope in enumerate(written.scopes):
            if not fit_scope(scope):
                with problems.at("scopes", index):
                    said = f"{scope!r} is not a scope. Use visible ASCII without quotes, backslashes and spaces."
                    problems.add("InvalidSource", said)
    if url is None or problems.error_count > before:
        return None
    unusable = issuer_settings(settings, url).unusable
    if unusable:
        with problems.at("oidc", "issuerUrl"):
            said = f"authplane cannot connect to the issuer: {unusable}. Add the CA certificates to the Secret."
            problems.add("IssuerUnreachable", said)
    return Oidc(issuer=url, audiences=frozenset(written.audiences), scopes=tuple(dict.fromkeys(written.scopes)))
