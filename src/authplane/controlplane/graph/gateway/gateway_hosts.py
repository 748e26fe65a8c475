"""The hosts of a listener: their routes, in order, and the protected resource metadata (RFC 9728)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TypeAlias

from authplane.controlplane.graph.gateway.gateway_listeners import Listener
from authplane.controlplane.graph.gateway.protection import Tokens
from authplane.controlplane.graph.gateway.route_matches import Precedence
from authplane.controlplane.graph.model.host_model import Host, IdentityHeaders
from authplane.controlplane.graph.model.hostnames import ANY, breadth
from authplane.controlplane.graph.model.match_model import Exact, Match
from authplane.controlplane.graph.model.route_authorization import Enforced, Unprotected
from authplane.controlplane.graph.model.route_model import ResourceMetadata, Route
from authplane.core.memo import Memo
from authplane.core.values import dataclass
from authplane.policy.mcp.resource_metadata import metadata_path


@dataclass(frozen=True, slots=True)
class Entry:
    """A route of a host, its precedence, and which tokens it accepts."""

    precedence: Precedence
    route: Route
    tokens: Tokens


Attachment: TypeAlias = tuple[str, tuple[Entry, ...]]
"""A host, and what one HTTPRoute has to say about it."""
_Described: TypeAlias = tuple[str, Tokens]


@dataclass(frozen=True, slots=True)
class ListenerMemory:
    """What a listener served in the last build; its parts are built again only if something of it has changed."""

    whole: Memo[tuple[str, bool], tuple[Host, ...]] = field(default_factory=Memo)
    """By the name that it has for clients, and whether it is secure."""
    hosts: Memo[str, Host] = field(default_factory=Memo)
    documents: Memo[_Described, Route] = field(default_factory=Memo)


def serve(listener: Listener, attached: Sequence[Attachment], memory: ListenerMemory | None = None) -> tuple[Host, ...]:
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

    def hosts(self, attached: Iterable[Attachment]) -> tuple[Host, ...]:
        """Return all hosts; a narrow one has the routes of the wider ones as well, after its own."""
        self._memory.hosts.start()
        self._memory.documents.start(self._listener.secure)
        entries: dict[str, list[Entry]] = defaultdict(list, {self._listener.hostname: []})
        for host, found in attached:
            entries[host] += found
        # Entries with the same precedence are in the order of their HTTPRoutes already.
        ordered = {name: sorted(found, key=_precedence) for name, found in entries.items()}
        made = tuple(self._host(name, ordered) for name in sorted(ordered))
        self._memory.hosts.finish()
        self._memory.documents.finish()
        return made

    def _host(self, name: str, ordered: Mapping[str, Sequence[Entry]]) -> Host:
        wider = sorted((each for each in _wider(name) if each in ordered), key=breadth)
        entries = [entry for each in wider for entry in ordered[each]]
        own = [entry.route for entry in entries]
        made = Host(
            name=name,
            routes=(*self._described(entries), *own),
            reserved=IdentityHeaders() if any(map(_is_checked, own)) else None,
        )
        return self._memory.hosts.share(name, made)

    def _described(self, entries: Iterable[Entry]) -> Iterator[Route]:
        """Return the routes of the RFC 9728 documents, unless a route serves one by an exact path."""
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

    def _document(self, resource: str, tokens: Tokens) -> Route:
        where = metadata_path(resource)
        return Route(
            holder=self._listener.name,
            match=Match(path=Exact(where)),
            authorization=Unprotected(),
            action=ResourceMetadata(
                scheme="https" if self._listener.secure else "http",
                path=resource,
                issuers=tokens.issuers,
                scopes=tokens.scopes,
            ),
        )


def _is_checked(route: Route) -> bool:
    return any(isinstance(each, Enforced) for each in route.authorizations)


def _precedence(entry: Entry) -> Precedence:
    return entry.precedence


def _path(described: _Described) -> str:
    return described[0]


def _wider(name: str) -> set[str]:
    """Return every pattern that covers a name, and the name."""
    _, *rest = name.split(".")
    return {name, ANY, *("*." + ".".join(rest[index:]) for index in range(len(rest)))}
