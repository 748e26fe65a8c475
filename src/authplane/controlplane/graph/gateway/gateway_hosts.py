"""The hosts of a listener: their routes, in order, and the documents that tell where to get tokens."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from authplane.controlplane.graph.gateway.gateway_listeners import Listener
from authplane.controlplane.graph.gateway.protection import Tokens
from authplane.controlplane.graph.gateway.route_matches import Precedence
from authplane.controlplane.graph.model.host_model import GatewayHost
from authplane.controlplane.graph.model.hostnames import ANY, breadth
from authplane.controlplane.graph.model.match_model import Exact, Match
from authplane.controlplane.graph.model.route_model import GatewayRoute, ResourceMetadata
from authplane.core.memo import Memo
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
class ListenerMemory:
    """What a listener served in the last build; its parts are asked for only where something of it has changed."""

    whole: Memo[tuple[str, bool], tuple[GatewayHost, ...]] = field(default_factory=Memo)
    """By the name that it has for clients, and whether it is secure."""
    hosts: Memo[str, GatewayHost] = field(default_factory=Memo)
    documents: Memo[_Described, GatewayRoute] = field(default_factory=Memo)


def serve(
    listener: Listener, attached: Sequence[Attachment], memory: ListenerMemory | None = None
) -> tuple[GatewayHost, ...]:
    """Build all hosts of a listener; ``attached`` is in the order of the HTTPRoutes."""
    memory = memory or ListenerMemory()
    memory.whole.start()
    table = _Table(listener, memory)
    return memory.whole.ensure((listener.hostname, listener.secure), attached, partial(table.hosts, attached))


class _Table:
    """The routes of one listener, by host."""

    def __init__(self, listener: Listener, memory: ListenerMemory) -> None:
        self._listener = listener
        self._memory = memory

    def hosts(self, attached: Iterable[Attachment]) -> tuple[GatewayHost, ...]:
        """Return all hosts; a narrow one has the routes of the wider ones as well, after its own."""
        self._memory.hosts.start()
        self._memory.documents.start(self._listener.secure)
        entries: dict[str, list[Entry]] = defaultdict(list, {self._listener.hostname: []})
        for host, found in attached:
            entries[host] += found
        # Those that stand alike are in the order of their HTTPRoutes already.
        ordered = {name: sorted(found, key=_precedence) for name, found in entries.items()}
        made = tuple(self._host(name, ordered) for name in sorted(ordered))
        self._memory.hosts.finish()
        self._memory.documents.finish()
        return made

    def _host(self, name: str, ordered: Mapping[str, Sequence[Entry]]) -> GatewayHost:
        wider = sorted((each for each in _wider(name) if each in ordered), key=breadth)
        entries = [entry for each in wider for entry in ordered[each]]
        own = (entry.route for entry in entries)
        return self._memory.hosts.share(name, GatewayHost(name=name, routes=(*self._described(entries), *own)))

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
                document = partial(self._document, resource, tokens)
                yield self._memory.documents.ensure((resource, tokens), None, document)

    def _document(self, resource: str, tokens: Tokens) -> GatewayRoute:
        where = metadata_path(resource)
        return GatewayRoute(
            name=f"{self._listener.name}#={where}",
            match=Match(path=Exact(where)),
            action=ResourceMetadata(
                scheme="https" if self._listener.secure else "http",
                path=resource,
                issuers=tokens.issuers,
                scopes=tokens.scopes,
            ),
        )


def _precedence(entry: Entry) -> Precedence:
    return entry.precedence


def _path(described: _Described) -> str:
    return described[0]


def _wider(name: str) -> set[str]:
    """Return every pattern that covers a name, and the name."""
    _, *rest = name.split(".")
    return {name, ANY, *("*." + ".".join(rest[index:]) for index in range(len(rest)))}
