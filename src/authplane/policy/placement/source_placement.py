"""Places the sources of rules: how Envoy identifies the senders."""

import re
from collections.abc import Iterable
from typing import Final, assert_never

from authplane.cel.check.regex_patterns import LONGEST, pattern_size
from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.envoy_attributes import JWT_METADATA, TOKEN_AGE, TOKEN_TYPE, claims
from authplane.cel.envoy.fitness import LARGEST_PATTERN
from authplane.cel.envoy.request_checks import (
    ALWAYS,
    PRESENT,
    Between,
    Check,
    Contains,
    Equals,
    Fits,
    Header,
    Lists,
    Metadata,
    Not,
    Number,
    every,
    found,
    some,
)
from authplane.cel.envoy.translate import TRUE, Certified, Claims, Condition, Members
from authplane.cel.syntax.tree import Node
from authplane.policy.identity.tokens.check_claims import LATEST_TIME
from authplane.policy.identity.tokens.verify import Demands
from authplane.policy.identity.workload_identity.spiffe import names_workload
from authplane.policy.placement.placement_model import CallOut, Sender, Token
from authplane.policy.rules.access_settings import IssuerSettings, Settings
from authplane.policy.rules.rule_model import Account, AnySource, Oidc, Source, Spiffe

WORKLOAD_TOKENS: Final = "names workloads that can also send tokens, which must match their certificates"
TWO_NAMES: Final = "names an issuer without https://, which tokens can spell in two ways"
AGE: Final = "names an issuer with a maximum token age"
SKEW: Final = "names an issuer whose clockSkew is not a whole number of seconds, or less than 2s"
NO_KEYS: Final = "names an issuer whose keys the control plane has not fetched yet"
UNUSABLE: Final = "names an issuer to which the control plane cannot connect"
NO_WORKLOAD: Final = "names a trust domain without a path, which identifies no workload"
SCOPE: Final = "requires a scope whose regular expression is larger than Envoy accepts"

CERTIFICATE_HEADER: Final = "x-forwarded-client-cert"
_UNKNOWN_KEY: Final = 32
"""What the filter calls a token that names a key which it does not have."""
_BAD_SIGNATURE: Final = 26
"""What it calls a token that the key of this name did not sign: the issuer may have replaced that key."""
_BEARER: Final = r"Bearer [A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
_LETTER: Final = r"[!-\-/-~]"
_BASE64: Final = rf"(?:{_LETTER}{{4}})*(?:{_LETTER}[AQgw]|{_LETTER}{{2}}[048AEIMQUYcgkosw])?"
"""The one right spelling of some bytes: the bits that belong to none of them are 0."""
_CANONICAL: Final = (rf"Bearer {_BASE64}\.{_BASE64}\.\C+", rf"\C+\.{_BASE64}")
"""One pattern for all three parts would be larger than Envoy accepts."""
_MOST_SCOPES: Final = 12

ANYBODY: Final = Sender(condition=Condition())


def header_key(issuer: str) -> str:
    """Return the key under which the jwt_authn filter keeps a token's header (``header_in_metadata``)."""
    return f"header {issuer}"


def failure_key(issuer: str) -> str:
    """Return the key under which the filter keeps why it refuses a token (``failed_status_in_metadata``)."""
    return f"failure {issuer}"


def place_source(source: Source, settings: Settings, keys: frozenset[str] | None = None) -> Sender | CallOut:
    """Return how Envoy identifies the senders of a rule, or why it cannot.

    ``keys`` are the addresses of the issuers whose keys Envoy has; None means all of them.
    """
    match source:
        case AnySource():
            return ANYBODY
        case Spiffe(ids=ids) if not all(map(names_workload, ids)):
            return CallOut(NO_WORKLOAD)
        case Spiffe(ids=ids):
            who = Members((("spiffe_id", next(iter(ids))),)) if len(ids) == 1 else Certified()
            return CallOut(WORKLOAD_TOKENS) if settings.workloads.authorities else _workload(ids, who)
        case Account(account=account, spiffe_id=spiffe_id):
            members = Members((("service_account", account.name), ("namespace", account.namespace)))
            ids = frozenset({spiffe_id})
            return CallOut(WORKLOAD_TOKENS) if settings.workloads.authorities else _workload(ids, members)
        case Oidc():
            sender = _token(source, settings)
            unknown = keys is not None and source.issuer.url not in keys
            return CallOut(NO_KEYS) if unknown and isinstance(sender, Sender) else sender
        case _:
            assert_never(source)


def _workload(ids: frozenset[str], who: Members | Certified) -> Sender:
    """Require one URI in the certificate; Envoy's principals check that one of them is among ``ids``.

    All URIs are in a header that Envoy writes, if configured: without it no workload is identified.
    """
    several = Header(CERTIFICATE_HEADER, Fits(r"\C*URI=\C*URI=\C*"))
    one = every((Header(CERTIFICATE_HEADER, Contains("URI=")), Not(several)))
    return Sender(condition=Condition(check=one), ids=ids, who=who)


def _token(source: Oidc, settings: Settings) -> Sender | CallOut:
    issuer = settings.issuers.get(source.issuer.url, IssuerSettings())
    obstacle = _obstacle(source, issuer)
    if obstacle:
        return CallOut(obstacle)
    url = source.issuer.url
    of_issuer = Metadata((JWT_METADATA, url, "iss"), (Equals(url),))
    # Nearly all tokens say it, and to ask in every expression whether they do would take longer.
    issued = Metadata((JWT_METADATA, url, "iat"), (PRESENT,))
    checks = (
        of_issuer,
        Metadata((JWT_METADATA, url, "exp"), (Between(0, LATEST_TIME + 1),)),
        *_header((JWT_METADATA, header_key(url)), issuer.demands),
        *(Header("authorization", Fits(each)) for each in (_BEARER, *_CANONICAL)),
        issued,
    )
    good = Condition(check=every(checks), tree=_issued(claims(url), int(issuer.demands.times.skew)))
    condition = Condition(
        check=_audience(url, source.audiences) if source.audiences else ALWAYS,
        tree=_scope(claims(url), source.scopes) if source.scopes else TRUE,
    )
    # The issuer may have a key that Envoy does not have yet; the policy server fetches the keys again.
    unknown = Metadata((JWT_METADATA, failure_key(url), "code"), (Number(_UNKNOWN_KEY), Number(_BAD_SIGNATURE)))
    unsure = Condition(check=some((unknown, every((of_issuer, Not(issued))))))
    token = Token(url, good, Condition(check=every((of_issuer, *_read(issuer.demands)))))
    return Sender(condition=condition, token=token, who=Claims(url), unsure=unsure)


def _obstacle(source: Oidc, issuer: IssuerSettings) -> str:
    times = issuer.demands.times
    if len(source.names) > 1:
        return TWO_NAMES
    if issuer.unusable:
        return UNUSABLE
    if times.longest_age is not None:
        return AGE
    if times.skew < 2 or times.skew != int(times.skew):
        # Envoy takes whole seconds, gets one less than the setting, and reads 0 as its default of a minute.
        return SKEW
    fits = all(len(each) <= LONGEST and pattern_size(each) <= LARGEST_PATTERN for each in map(_word, source.scopes))
    return "" if fits else SCOPE


def _header(header: tuple[str, ...], demands: Demands) -> Iterable[Check]:
    """Return what a token's header must say.

    Envoy itself looks at the signature, and at the types of what it knows. The algorithm is one that counts: every
    key that Envoy is given is for those alone.
    """
    kinds = (f"{prefix}{each}" for each in sorted(demands.types) if each for prefix in ("", "application/"))
    fits = found((*header, "typ"), (Equals(each, ignore_case=True) for each in kinds))
    untyped = Not(Metadata((*header, "typ"), (PRESENT,)))
    # An empty one is none to Envoy, which would try every key.
    yield Metadata((*header, "kid"), (Fits(r"\C+"),))
    yield from (Not(Metadata((*header, each), (PRESENT,))) for each in ("b64", "crit", "cty"))
    yield some((fits, untyped)) if "" in demands.types else fits


def _issued(claimed: Node, skew: int) -> Node:
    """Return a condition: a token was not issued later than now. Envoy checks only that ``iat`` is a number."""
    earliest = condition_nodes.call("_-_", condition_nodes.member(claimed, "iat"), condition_nodes.literal(float(skew)))
    return condition_nodes.call("_<=_", earliest, condition_nodes.call("int", condition_nodes.name("request.time")))


def _read(demands: Demands) -> Iterable[Check]:
    """Return what the reader must have found in a token that Envoy has verified. It reads no other tokens' times."""
    yield Metadata(TOKEN_AGE, (Between(-int(demands.times.skew), LATEST_TIME + 1),))
    yield found(TOKEN_TYPE, map(Equals, sorted(demands.types)))


def _audience(url: str, audiences: frozenset[str]) -> Check:
    named = (test for each in sorted(audiences) for test in (Equals(each), Lists(each)))
    return Metadata((JWT_METADATA, url, "aud"), tuple(named))


def _scope(claimed: Node, scopes: tuple[str, ...]) -> Node:
    return condition_nodes.some(
        _if_there(claimed, each, _scoped(condition_nodes.member(claimed, each), scopes), otherwise=False)
        for each in ("scope", "scp")
    )


def _scoped(value: Node, scopes: tuple[str, ...]) -> Node:
    words = condition_nodes.some(condition_nodes.matches(value, _word(each)) for each in scopes)
    return condition_nodes.call("_?_:_", _is(value, "string"), words, _listed(value, scopes, _MOST_SCOPES))


def _word(scope: str) -> str:
    return f"(?:^| ){re.escape(scope)}(?: |$)"


def _listed(value: Node, wanted: Iterable[str], most: int) -> Node:
    """Return a condition: a list of texts only has one of these. Conditions have no loops."""
    size = condition_nodes.call("size", value)
    texts = (
        condition_nodes.some(
            (
                condition_nodes.call("_<=_", size, condition_nodes.literal(index)),
                _is(condition_nodes.call("_[_]", value, condition_nodes.literal(index)), "string"),
            )
        )
        for index in range(most)
    )
    has_one = condition_nodes.some(
        condition_nodes.call("@in", condition_nodes.literal(each), value) for each in sorted(wanted)
    )
    return condition_nodes.every(
        (_is(value, "list"), condition_nodes.call("_<=_", size, condition_nodes.literal(most)), has_one, *texts)
    )


def _is(value: Node, kind: str) -> Node:
    return condition_nodes.call("_==_", condition_nodes.call("type", value), condition_nodes.name(kind))


def _there(container: Node, key: str) -> Node:
    return condition_nodes.call("@in", condition_nodes.literal(key), container)


def _if_there(container: Node, key: str, condition: Node, *, otherwise: bool = True) -> Node:
    return condition_nodes.call("_?_:_", _there(container, key), condition, condition_nodes.literal(otherwise))
