"""Checks the names that ExternalName Services point to."""

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from authplane.controlplane.graph.settings.gateway_settings import ExternalNames, NameRules
from authplane.core.addresses import meant_by, parse_ip_address

_LABEL: Final = r"[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_LONGEST: Final = 253

_HERE: Final = frozenset(
    {
        "localhost",
        "localhost.localdomain",
        "localhost4",
        "localhost4.localdomain4",
        "localhost6",
        "localhost6.localdomain6",
        "ip6-localhost",
        "ip6-loopback",
        "local.projectcontour.io",
    }
)
"""Names that resolve to the local machine, by convention or by its usual hosts file."""
_LEADING_HERE: Final = ("lacolhost.com", "localho.st", "localtest.me", "lvh.me", "vcap.me")
"""Public domains in which every name resolves to loopback addresses."""
_WRITTEN_OUT: Final = ("nip.io", "sslip.io", "xip.io")
"""Public domains in which a name resolves to the address that is written in it."""
_METADATA: Final = frozenset(
    {"instance-data", "instance-data.ec2.internal", "metadata.goog", "metadata.google.internal"}
)
"""Names of cloud metadata services, which give credentials to a machine: they lead to link-local addresses."""
_METADATA_ADDRESSES: Final = frozenset({ip_address("100.100.100.200"), ip_address("fd00:ec2::254")})


class Place(StrEnum):
    """A destination that is special to the machine that connects; the values are words for messages."""

    HERE = "localhost"
    LINK = "a link-local address"
    METADATA = "a cloud metadata address"
    CLUSTER = "a DNS name inside the cluster"
    WRITTEN_OUT = "an address that the name contains"


def external_name_problem(written: str, rules: NameRules) -> str:
    """Say what is wrong with the destination of an ExternalName Service, as the end of a sentence; empty if nothing.

    Names are not resolved here: only names and addresses that are local by definition are found.
    """
    host = external_host(written)
    address = parse_ip_address(host)
    if address is None and not is_dns_name(host):
        return f"is an ExternalName service whose externalName {written!r} is not a DNS name. Correct it."
    if rules.allowed is ExternalNames.ANYWHERE:
        return ""
    where = special_place(host, rules.cluster_domain)
    return (
        f"is an ExternalName service that points to {where}, this is not allowed. Use an EndpointSlice."
        if where
        else ""
    )


def special_place(host: str, cluster_domain: str) -> Place | None:
    """Return which special destination a name or an address is; None if it is an ordinary one."""
    address = parse_ip_address(host)
    return _local_name(host, cluster_domain) if address is None else _local_address(address)


def is_dns_name(host: str) -> bool:
    """Tell whether a host is a DNS name, in lower case and without the dot at its end; an address is none."""
    # A name that ends in a number is none: some resolvers take 127.1 or 0x7f000001 for an address.
    return bool(len(host) <= _LONGEST and _NAME.fullmatch(host) and not _NUMBER.fullmatch(host.rpartition(".")[2]))


def external_host(written: str) -> str:
    """Return the host that an ``externalName`` means: it is absolute, with or without the dot at its end."""
    return written.removesuffix(".").lower()


def _local_name(host: str, cluster_domain: str) -> Place | None:
    if host in _HERE or _is_below(host, "localhost") or any(_is_below(host, each) for each in _LEADING_HERE):
        return Place.HERE
    if any(_is_below(host, each) for each in _WRITTEN_OUT):
        return Place.WRITTEN_OUT
    if _is_below(host, "svc") or _is_below(host, cluster_domain.lower()):
        return Place.CLUSTER
    return Place.METADATA if host in _METADATA else None


def _is_below(host: str, domain: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _local_address(address: IPv4Address | IPv6Address) -> Place | None:
    """Say which place of this machine or its link an address means, in whichever notation; None if none."""
    every = (address, *meant_by(address))
    if any(each.is_loopback or each.is_unspecified for each in every):
        return Place.HERE
    if not _METADATA_ADDRESSES.isdisjoint(every):
        return Place.METADATA
    return Place.LINK if any(each.is_link_local for each in every) else None
