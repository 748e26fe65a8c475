"""The hosts of a listener: their routes, in order, and the documents that tell where to get tokens."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from authplane.controlplane.graph.gateway.gateway_listeners import Listener
from authplane.controlplane.graph.gateway.protection import Tokens
from authplane.controlplane.graph.gateway.route_matches import Precedence
from authplane.controlplane.graph.model.host_model import GatewayHost
from authplane.controlplane.graph.model.hostnames import ANY, breadth
from authplane.controlplane.graph.model.match_model import Exact, Match
from authplane.controlplane.graph.model.route_model import GatewayRoute, ResourceMetadata
from authplane.policy.mcp.resource_metadata import metadata_path


@dataclass(frozen=True, slots=True)
class Entry:
    """A route of a host, where it stands, and which tokens it asks for."""

    precedence: Precedence
    route: GatewayRoute
    tokens: Tokens


Attachment: TypeAlias = tuple[str, tuple[Entry, ...]]
"""A host, and what one HTTPRoute has to say about it."""
_Described: TypeAlias = tuple[str, Tokens]


@dataclass(frozen=True, slots=True)
class Served:
    """What a listener serves, and what it was made of."""

    listener: tuple[str, str, bool]
    attached: Sequence[Attachment]
    hosts: tuple[GatewayHost, ...]
    documents: Mapping[_Described, GatewayRoute] = field(repr=False)


def serve(listener: Listener, attached: Sequence[Attachment], before: Served | None = None) -> Served:
    """Build all hosts of a listener; ``attached`` is in the order of the HTTPRoutes.

    What equals the last time is the same object as in ``before``.
    """
    about = (listener.name, listener.hostname, listener.secure)
    if before is not None and before.listener != about:
        before = None
    if before is not None and before.attached == attached:
        return before
    table = _Table(listener, before)
    return Served(about, attached, table.hosts(attached), table.documents)


class _Table:
    """The routes of one listener, by host."""

    def __init__(self, listener: Listener, before: Served | None) -> None:
        self._listener = listener
        self._hosts = {host.name: host for host in before.hosts} if before else {}
        self._documents: Mapping[_Described, GatewayRoute] = before.documents if before else {}
        self.documents: dict[_Described, GatewayRoute] = {}

    def hosts(self, attached: Iterable[Attachment]) -> tuple[GatewayHost, ...]:
        """Return all hosts; a narrow one has the routes of the wider ones as well, after its own."""
        entries: dict[str, list[Entry]] = defaultdict(list, {self._listener.hostname: []})
        for host, found in attached:
            entries[host] += found
        # Those that stand alike are in the order of their HTTPRoutes already.
        ordered = {name: sorted(found, key=_precedence) for name, found in entries.items()}
        return tuple(self._host(name, ordered) for name in sorted(ordered))

    def _host(self, name: str, ordered: Mapping[str, Sequence[Entry]]) -> GatewayHost:
        wider = sorted((each for each in _wider(name) if each in ordered), key=breadth)
        entries = [entry for each in wider for entry in ordered[each]]
        own = (entry.route for entry in entries)
        made = GatewayHost(name=name, routes=(*self._described(entries), *own))
        known = self._hosts.get(name)
        return known if known is not None and known == made else made

    def _described(self, entries: Iterable[Entry]) -> Iterator[GatewayRoute]:
        """Return the routes of the RFC 9728 documents, unless somebody serves one by an exact path."""
        by_path: dict[str, Tokens] = {}
        taken = set()
        for entry in entries:
            path = entry.route.match.path
            if isinstance(path, Exact):
                taken.add(path.path)
            if entry.tokens.issuers:
                known = by_path.get(path.path)
                by_path[path.path] = entry.tokens if known is None else known | entry.tokens
        for resource, tokens in sorted(by_path.items(), key=_path):
            if metadata_path(resource) not in taken:
                yield self._document(resource, tokens)

    def _document(self, resource: str, tokens: Tokens) -> GatewayRoute:
        key = (resource, tokens)
        made = self.documents.get(key) or self._documents.get(key)
        if made is None:
            where = metadata_path(resource)
            made = GatewayRoute(
                name=f"{self._listener.name}#={where}",
                match=Match(path=Exact(where)),
                action=ResourceMetadata(
                    scheme="https" if self._listener.secure else "http",
                    path=resource,
                    issuers=tokens.issuers,
                    scopes=tokens.scopes,
                ),
            )
        self.documents[key] = made
        return made


def _precedence(entry: Entry) -> Precedence:
    return entry.precedence


def _path(described: _Described) -> str:
    return described[0]


def _wider(name: str) -> set[str]:
    """Return every pattern that covers a name, and the name."""
    _, *rest = name.split(".")
    return {name, ANY, *("*." + ".".join(rest[index:]) for index in range(len(rest)))}
