"""Hosts, and their routes in the order of precedence."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from authplane.controlplane.graph.model.route_authorization import Enforced, HeaderNames
from authplane.controlplane.graph.model.route_model import Forward, Route
from authplane.core.names import ObjectName
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class ServiceHeaders:
    """The headers that authorization services set: ``Auth-*``, and those that the host's service may set."""

    more: tuple[HeaderNames, ...] = ()


@dataclass(frozen=True, slots=True)
class IdentityHeaders:
    """The headers in which backends read the identity that policies granted."""


ReservedHeaders: TypeAlias = ServiceHeaders | IdentityHeaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host that one listener serves; routes are in the order of precedence."""

    name: str
    """One name, ``*.`` and a name, or ``*``."""
    routes: tuple[Route, ...]
    proxies: tuple[ObjectName, ...] = ()
    """The HTTPProxies that it is made of: the root, and those that it includes at any depth, sorted."""
    one_label: bool = False
    """Whether a wildcard matches one label, as in HTTPProxies; otherwise any number, as in Gateways."""
    reserved: ReservedHeaders | None = None
    """The headers that no client may send to origins; None if nothing here is authorized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """Names without a host here: every request for them gets the same answer."""

    name: str
    names: tuple[str, ...]
    status: int


def misdirected(names: Iterable[str]) -> Answering:
    """Refuse requests for names that clients have to name in TLS as well (RFC 9110, 15.5.20)."""
    return Answering(name="misdirected", names=tuple(names), status=421)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """Finds the host of a request on a connection."""

    name: str
    entries: tuple[Host | Answering, ...]
    gaps: bool = False
    """Whether backends that cannot be found have a share of the requests, as in HTTPRoutes."""

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that are served."""
        return tuple(each for each in self.entries if isinstance(each, Host))


def forwards_of(hosts: Iterable[Host]) -> Iterator[Forward]:
    """Return where requests of hosts are sent."""
    return (route.action for host in hosts for route in host.routes if isinstance(route.action, Forward))


def checks_of(hosts: Iterable[Host]) -> Iterator[Enforced]:
    """Return every check that requests of hosts may meet, as often as they do."""
    for host in hosts:
        for route in host.routes:
            for each in route.authorizations:
                if isinstance(each, Enforced):
                    yield each
