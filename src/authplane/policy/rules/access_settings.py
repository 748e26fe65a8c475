"""The settings of all AccessPolicies, from an AuthplaneConfiguration."""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.core.timeouts import After, UseDefault, parse_timeout
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.check_claims import LONGEST_SKEW, Times
from authplane.policy.identity.tokens.issuer import Reach
from authplane.policy.identity.tokens.issuer_url import IssuerUrl, parse_issuer_url
from authplane.policy.identity.tokens.verify import JWT_SVIDS, Demands
from authplane.policy.identity.workload_identity.reviewing import LONGEST
from authplane.policy.identity.workload_identity.workload_authorities import (
    NO_WORKLOAD_TOKENS,
    Authority,
    ClusterAuthority,
    SvidAuthority,
    WorkloadTokens,
)
from authplane.policy.mcp.mcp_answers import DenialFormat
from authplane.policy.mcp.message_limits import McpLimits
from authplane.resources.documents import Resources
from authplane.resources.kinds.policy_settings import Issuer as WrittenIssuer
from authplane.resources.kinds.policy_settings import PolicySettings, ServiceAccountTokens

_CA_KEY: Final = "ca.crt"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


class Composition(StrEnum):
    """How the policies of one target are taken together."""

    ALL = "All"
    """Every policy must allow."""
    ANY = "Any"
    """One policy that allows suffices; those of a Gateway and of a backend still both have to."""


class Placement(StrEnum):
    """Who may decide."""

    AUTO = "Auto"
    """Envoy, wherever it gives the same answer."""
    CALL_OUT = "CallOut"
    """The policy server, always."""


NO_BODY_INSPECTION: Final = (
    "This setting has no effect: Envoy reads MCP messages as strictly as the policy server. Remove it."
)
"""About a setting of earlier versions, which chose between strict and native."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of the program that documents cannot change."""

    allow_http_issuers: bool = False
    """For development: issuers on this machine may be reached without TLS."""
    most_per_namespace: int = 2000
    most_per_target: int = 5
    most_screens_per_target: int = 1
    """How many policies with the action ExternalAuth."""
    ask_seconds: float = 5.0
    """How long all external services together may take over one request."""
    token_reviews: bool = False
    """Whether a Kubernetes API server is available to review tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerSettings:
    """How to fetch the keys of an issuer, and the requirements for its tokens."""

    reach: Reach = field(default_factory=Reach)
    demands: Demands = field(default_factory=Demands)
    unusable: str = ""
    """Why the issuer cannot be reached as it is configured; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is set once."""

    trust_domain: str = "cluster.local"
    issuers: Mapping[str, IssuerSettings] = field(default_factory=lambda: MappingProxyType({}))
    """By address."""
    workloads: WorkloadTokens = NO_WORKLOAD_TOKENS
    """The issuers whose tokens identify workloads."""
    composition: Composition = Composition.ALL
    allow_unprotected: bool = False
    denial_format: DenialFormat = DenialFormat.HTTP403
    limits: McpLimits = field(default_factory=McpLimits)
    strict: bool = False
    ask_seconds: float = 5.0
    placement: Placement = Placement.AUTO
    """Applies to targets that choose nothing themselves."""


def read_settings(resources: Resources, options: Options, problems: Problems) -> Settings | None:
    """Return what is set; None means that the configuration cannot be used, and then nothing is allowed.

    ``problems`` are those of the configuration. The defaults are for those who say nothing: they are wider than what
    somebody may have wanted whose configuration has a mistake.
    """
    if any(ref.kind == "AuthplaneConfiguration" for ref in resources.broken):
        return None
    configuration = resources.configuration
    spec: PolicySettings = PolicySettings() if configuration is None else configuration.spec
    if spec.body_inspection is not None:
        with problems.at("spec", "bodyInspection"):
            problems.warn("FieldObsolete", NO_BODY_INSPECTION)
    before = problems.error_count
    issuers, workloads = _issuers(spec.issuers, resources, options, problems)
    settings = Settings(
        trust_domain=spec.trust_domain,
        issuers=issuers,
        workloads=workloads,
        composition=Composition(spec.policy_composition),
        allow_unprotected=spec.unprotected_backends == "Allow",
        denial_format=DenialFormat(spec.denial_format),
        limits=McpLimits(body=spec.max_request_body),
        strict=spec.strict,
        ask_seconds=options.ask_seconds,
        placement=Placement(spec.placement),
    )
    return settings if problems.error_count == before else None


def configuration_ref(resources: Resources) -> Ref:
    """Name the configuration, also one that cannot be read."""
    found = resources.configuration
    if found is not None:
        return Ref("AuthplaneConfiguration", found.metadata.namespace, found.metadata.name)
    broken = sorted(ref for ref in resources.broken if ref.kind == "AuthplaneConfiguration")
    return broken[0] if broken else Ref("AuthplaneConfiguration", "default", "authplane")


def _issuers(
    written: tuple[WrittenIssuer, ...], resources: Resources, options: Options, problems: Problems
) -> tuple[Mapping[str, IssuerSettings], WorkloadTokens]:
    found: dict[str, IssuerSettings] = {}
    authorities: list[Authority] = []
    for index, each in enumerate(written):
        with problems.at("spec", "issuers", index):
            with problems.at("url"):
                url = parse_issuer_url(each.url, problems, allow_http=options.allow_http_issuers)
                if url is not None and url.url in found:
                    problems.add("Conflicted", f"Issuer {url.url!r} is listed twice. Remove one of the entries.")
            times = _times(each, problems)
            _check_workloads(each, options, problems)
            if url is not None and times is not None:
                found[url.url] = _issuer(each, times, resources, problems)
                # An issuer that cannot be reached has no keys, and identifies no workload.
                authorities += () if found[url.url].unusable else _authority(each, url)
    return MappingProxyType(found), WorkloadTokens(tuple(authorities))


def _check_workloads(written: WrittenIssuer, options: Options, problems: Problems) -> None:
    accounts = written.service_accounts
    if accounts is None:
        return
    with problems.at("serviceAccounts"):
        if written.jwt_svids is not None:
            problems.add("Conflicted", "'jwtSvids' and 'serviceAccounts' are both set. Remove one of them.")
        if accounts.verification == "TokenReview" and not options.token_reviews:
            with problems.at("verification"):
                said = "No Kubernetes API server is available to review tokens."
                problems.add(
                    "FieldInvalid", f"{said} Use --kubernetes, or 'Keys', which does not detect revoked tokens."
                )
        if _review_lifetime(accounts) is None:
            with problems.at("reviewLifetime"):
                said = f"{accounts.review_lifetime!r} is not a duration of at most {LONGEST:g}s."
                problems.add("FieldInvalid", f"{said} Use a value such as '30s'.")


def _review_lifetime(accounts: ServiceAccountTokens) -> float | None:
    """Return the seconds for which positive reviews are kept; None if they are not set as a duration."""
    match parse_timeout(accounts.review_lifetime):
        case UseDefault():
            return 0.0 if accounts.review_lifetime.startswith("0") else LONGEST
        case After(duration) if duration <= timedelta(seconds=LONGEST):
            return duration.total_seconds()
        case _:
            return None


def _authority(written: WrittenIssuer, url: IssuerUrl) -> tuple[Authority, ...]:
    """Return the workloads that tokens of an issuer identify, if any."""
    svids, accounts = written.jwt_svids, written.service_accounts
    if svids is not None:
        return (SvidAuthority(issuer=url, trust_domain=svids.trust_domain, audiences=frozenset(svids.audiences)),)
    if accounts is None:
        return ()
    reviewed = accounts.verification == "TokenReview"
    return (
        ClusterAuthority(
            issuer=url,
            audiences=frozenset(accounts.audiences),
            reviewed=reviewed,
            review_lifetime=_review_lifetime(accounts) or 0.0,
        ),
    )


def _times(written: WrittenIssuer, problems: Problems) -> Times | None:
    match parse_timeout(written.clock_skew):
        case UseDefault():
            return Times(skew=0) if written.clock_skew.startswith("0") else Times()
        case After(duration) if duration <= timedelta(seconds=LONGEST_SKEW):
            return Times(skew=duration.total_seconds())
        case _:
            with problems.at("clockSkew"):
                said = (
                    f"{written.clock_skew!r} is not a duration of at most {LONGEST_SKEW:g}s. Use a value such as '30s'."
                )
                problems.add("FieldInvalid", said)
            return None


def _issuer(written: WrittenIssuer, times: Times, resources: Resources, problems: Problems) -> IssuerSettings:
    pem, unusable = "", ""
    if written.ca_secret is not None and written.ca_file:
        problems.add("Conflicted", "'caFile' and 'caSecret' are both set. Remove one of them.")
    elif written.ca_secret is not None:
        name = ObjectName(written.ca_secret.namespace, written.ca_secret.name)
        pem = _certificates(resources, name)
        if not pem:
            unusable = f'Secret "{name}" has no certificates under {_CA_KEY!r}'
            with problems.at("caSecret"):
                said = f"{unusable}; policies that name this issuer deny all requests. Add the certificates."
                problems.warn("IssuerUnreachable", said)
    return IssuerSettings(
        reach=Reach(
            jwks_hosts=written.jwks_hosts,
            allow_private_network=written.allow_private_network,
            ca_pem=pem,
            ca_file=written.ca_file,
        ),
        demands=Demands(times=times) if written.jwt_svids is None else replace(JWT_SVIDS, times=times),
        unusable=unusable,
    )


def _certificates(resources: Resources, name: ObjectName) -> str:
    """Return the certificates of a Secret without its other content; empty if it has none."""
    secret = resources.secrets.get(name)
    value = secret.value(_CA_KEY) if secret is not None else None
    found = _CERTIFICATE.findall(value.reveal()) if value is not None else []
    return "".join(f"{each.decode('ascii')}\n" for each in found)


def issuer_settings(settings: Settings, url: IssuerUrl) -> IssuerSettings:
    """Return how an issuer is reached that a policy names."""
    return settings.issuers.get(url.url, _DEFAULT)


_DEFAULT: Final = IssuerSettings()
