"""Rules about calls, and whether a call matches them.

Permissions and principals are made of the same rules: what a call does, and who makes it.
"""

from enum import Enum, auto
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias, assert_never

from authplane.core.addresses import parse_ip_address
from authplane.core.values import dataclass
from authplane.dataplane.filters.call_headers import AUTHORITY, lookup_in
from authplane.dataplane.filters.calls import Call, Connection, PeerCertificate
from authplane.dataplane.filters.networks import Network
from authplane.matching.header_matchers import HeaderMatcher, matches_header
from authplane.matching.string_matchers import StringMatcher, matches


@dataclass(frozen=True, slots=True)
class Always:
    """Every call keeps it, or no call does."""

    holds: bool = True


@dataclass(frozen=True, slots=True)
class All:
    """All of the rules."""

    rules: "tuple[Rule, ...]"


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of the rules."""

    rules: "tuple[Rule, ...]"


@dataclass(frozen=True, slots=True)
class Not:
    """The rule is not kept."""

    rule: "Rule"


@dataclass(frozen=True, slots=True)
class Header:
    """A header is as the matcher says."""

    matcher: HeaderMatcher


@dataclass(frozen=True, slots=True)
class UrlPath:
    """The full name of the method, with its slash."""

    matcher: StringMatcher


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """Our address is in the network."""

    network: Network


@dataclass(frozen=True, slots=True)
class LocalPort:
    """Our port is from ``start`` to just below ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The client's address is in the network."""

    network: Network


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client's certificate has a matching name; without a matcher, the connection has TLS."""

    matcher: StringMatcher | None = None


Fact: TypeAlias = Header | UrlPath | LocalAddress | LocalPort | PeerAddress | Authenticated
"""Conditions about the call itself."""
Rule: TypeAlias = Always | All | Some | Not | Fact


def keeps(rule: Rule, call: Call, connection: Connection) -> bool:
    """Tell whether a call keeps a rule."""
    match rule:
        case Always(holds):
            return holds
        case All(rules):
            return all(keeps(each, call, connection) for each in rules)
        case Some(rules):
            return any(keeps(each, call, connection) for each in rules)
        case Not(inner):
            return not keeps(inner, call, connection)
        case _:
            return _is_fact(rule, call, connection)


class Need(Enum):
    """What a rule reads that is not always known."""

    AUTHORITY = auto()
    LOCAL_ADDRESS = auto()
    LOCAL_PORT = auto()


def needs_of(rule: Rule) -> frozenset[Need]:
    """Return what must be known of a call so that one can tell whether it keeps a rule."""
    match rule:
        case All(rules) | Some(rules):
            return frozenset().union(*map(needs_of, rules))
        case Not(inner):
            return needs_of(inner)
        case Header(matcher) if matcher.name in AUTHORITY:
            return frozenset({Need.AUTHORITY})
        case LocalAddress():
            return frozenset({Need.LOCAL_ADDRESS})
        case LocalPort():
            return frozenset({Need.LOCAL_PORT})
        case _:
            return frozenset()


def is_known(need: Need, call: Call, connection: Connection) -> bool:
    """Tell whether something is known of a call."""
    match need:
        case Need.AUTHORITY:
            return call.authority is not None
        case Need.LOCAL_ADDRESS:
            return connection.local.is_known
        case Need.LOCAL_PORT:
            return bool(connection.local.address)
        case _:
            assert_never(need)


def _is_fact(fact: Fact, call: Call, connection: Connection) -> bool:
    match fact:
        case Header(matcher):
            return matches_header(matcher, lookup_in(call))
        case UrlPath(matcher):
            return matches(matcher, call.path)
        case LocalAddress(network):
            return _is_in(connection.local.address, network)
        case LocalPort(start, end):
            return start <= connection.local.port < end
        case PeerAddress(network):
            return _is_in(connection.remote.address, network)
        case Authenticated(who):
            return _is_authenticated(who, connection)
        case _:
            assert_never(fact)


def _is_authenticated(matcher: StringMatcher | None, connection: Connection) -> bool:
    certificate = connection.certificate
    # gRFC A41: a connection without TLS has no name; one with TLS but without a certificate has the empty name.
    if certificate is None and not connection.tls_version:
        return False
    return matcher is None or any(matches(matcher, name) for name in _names(certificate))


def _names(certificate: PeerCertificate | None) -> tuple[str, ...]:
    """Return who a client can be called: names of the first kind that its certificate has."""
    if certificate is None:
        return ("",)
    return certificate.uris or certificate.dns_names or (certificate.subject,)


def _is_in(address: str, network: Network) -> bool:
    found = _address(address)
    return found is not None and found.version == network.version and found in network


@lru_cache(maxsize=1024)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an address; one of IPv4 may come as a part of IPv6."""
    found = parse_ip_address(text)
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped
