"""A client of xDS servers, as a state machine: events and time go in, effects come out."""

from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Final

from authplane.core.problems import printable
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, Feature, XdsServer
from authplane.xds.client.authorities import Realm, realm_of
from authplane.xds.client.client_messages import Connect, Disconnect, Effect, Link, Notify, Request, Response, Send
from authplane.xds.client.conversation import Conversation, Topic
from authplane.xds.client.delivery import Delivery, deliver
from authplane.xds.client.resource_cache import Dumped, Entry, Key, Setback, Standing, dump
from authplane.xds.client.resource_names import parse_name
from authplane.xds.client.watch_events import NOTHING, Failed, Fault, Trouble, events_between
from authplane.xds.client.watched_types import ResourceType
from authplane.xds.server.client_text import clean_message

PATIENCE: Final = 15.0
"""Seconds after which a resource that a server has not sent does not exist."""
LONG_PATIENCE: Final = 30.0
"""The same where a server would say so: then it is only slow."""


class ClientSession:
    """Watches resources. The driver calls `flush` after other calls, and `elapsed` when `due`.

    Only `flush` makes requests, so that simultaneous changes go out in one request for each type.
    """

    def __init__(self, bootstrap: Bootstrap, types: Iterable[ResourceType[Any]]) -> None:
        self._bootstrap = bootstrap
        self._types: Mapping[str, ResourceType[Any]] = MappingProxyType({each.type_url: each for each in types})
        self._realms: dict[str | None, Realm] = {}
        self._conversations: dict[XdsServer, Conversation] = {}
        self._watched: dict[int, tuple[Realm, Entry] | None] = {}
        self._numbers = count(1)
        self._effects: list[Effect] = []

    # --- Watchers

    def watch(self, type_url: str, name: str, watcher: int) -> tuple[Effect, ...]:
        """Begin to watch: the watcher gets what is known, in order, and all changes.

        Raises `KeyError` for a type that the session was not made for.
        """
        kind = self._types[type_url]
        parsed = parse_name(name, kind.type_url)
        realm = None if parsed is None else self._realm(parsed.authority)
        if parsed is None or realm is None:
            why = "is malformed" if parsed is None else "has an authority that is not in the bootstrap"
            fault = self._fault(Trouble.NAME, Key(type_url, name), why)
            self._watched[watcher] = None
            return (Notify(watcher, Failed(fault)),)
        key = Key(kind.type_url, parsed.text)
        entry = realm.entries.get(key)
        if entry is None:
            entry = realm.entries[key] = Entry(key=key)
        entry.watchers[watcher] = None
        self._watched[watcher] = (realm, entry)
        self._effects += [Notify(watcher, event) for event in events_between(NOTHING, entry.told)]
        self._ask(realm, entry)
        return self._done()

    def unwatch(self, watcher: int) -> tuple[Effect, ...]:
        """Stop watching. A resource without watchers is dropped with the next `flush`."""
        found = self._watched.pop(watcher, None)
        if found is not None:
            found[1].watchers.pop(watcher)
        return self._done()

    # --- What happens to streams

    def connected(self, link: Link, now: float) -> tuple[Effect, ...]:
        """Record that a stream is open, on an established connection."""
        conversation = self._current(link)
        if conversation is not None:
            conversation.opened(now, self._has)
        return self._done()

    def sent(self, link: Link, request: Request, now: float) -> tuple[Effect, ...]:
        """Record that a request was written: from now on the server has time to answer."""
        conversation = self._current(link)
        if conversation is not None:
            transient = Feature.RESOURCE_TIMER_IS_TRANSIENT_ERROR in link.server.features
            conversation.written(request, now, LONG_PATIENCE if transient else PATIENCE)
        return self._done()

    def received(self, link: Link, response: Response, now: float) -> tuple[Effect, ...]:
        """Take a response: what is valid in it is used, and it is refused if anything is not."""
        conversation = self._current(link)
        if conversation is None:
            return ()
        self._recover(conversation)
        kind, topic = self._types.get(response.type_url), conversation.topics.get(response.type_url)
        if kind is not None and topic is not None and topic.asked:
            self._take(conversation, kind, topic, response, now)
        return self._done()

    def ended(self, link: Link, why: str, now: float, draw: float) -> tuple[Effect, ...]:
        """Record that a stream or an attempt is over; ``draw`` is random, from 0 up to 1."""
        conversation = self._current(link)
        if conversation is not None and conversation.ended(now, draw):
            text = f"xDS server {link.server.uri}: {clean_message(why)}"
            conversation.fault = Fault(Trouble.UNREACHABLE, self._signed(text))
            for realm in self._realms.values():
                if link.server in realm.present:
                    self._fall_back(realm)
        return self._done()

    # --- Time

    def due(self) -> float | None:
        """Return when to call `elapsed`; None while there is nothing to wait for."""
        return min((at for each in self._conversations.values() for at in each.due()), default=None)

    def elapsed(self, now: float) -> tuple[Effect, ...]:
        """Do what is due: connect again, and give up on what has not come."""
        for conversation in self._conversations.values():
            if conversation.retry_at is not None and conversation.retry_at <= now:
                self._connect(conversation)
            for key in conversation.overdue(now):
                self._miss(conversation, key, now)
        return self._done()

    def flush(self) -> tuple[Effect, ...]:
        """Drop resources without watchers, and make the requests that are due."""
        for realm in self._realms.values():
            self._forget_idle(realm)
        for server, conversation in list(self._conversations.items()):
            if conversation.wanted:
                link = conversation.link
                if link is not None:
                    self._effects += [Send(link, request) for request in conversation.requests()]
                continue
            del self._conversations[server]
            if conversation.link is not None:
                self._effects.append(Disconnect(conversation.link))
        return self._done()

    def dump(self) -> tuple[Dumped, ...]:
        """Return what is known of every watched resource."""
        entries = [entry for realm in self._realms.values() for entry in realm.entries.values()]
        return tuple(dump(entry) for entry in sorted(entries, key=lambda each: (each.key.type_url, each.key.name)))

    # --- Servers

    def _realm(self, authority: str | None) -> Realm | None:
        if authority not in self._realms:
            made = realm_of(self._bootstrap, authority)
            if made is None:
                return None
            self._realms[authority] = made
        return self._realms[authority]

    def _current(self, link: Link) -> Conversation | None:
        conversation = self._conversations.get(link.server)
        return conversation if conversation is not None and conversation.link == link else None

    def _connect(self, conversation: Conversation) -> None:
        link = Link(conversation.server, next(self._numbers))
        conversation.begin(link)
        self._effects.append(Connect(link))

    def _ask(self, realm: Realm, entry: Entry) -> None:
        """Ask every server in use for a resource; the first one if there is none."""
        if not realm.used:
            self._use_next(realm)
        for server in realm.present:
            self._conversations[server].want(entry.key, cached=entry.held is not None)
        self._fall_back(realm)

    def _use_next(self, realm: Realm) -> None:
        server = realm.servers[realm.used]
        realm.used += 1
        conversation = self._conversations.get(server)
        if conversation is None:
            conversation = self._conversations[server] = Conversation(server, self._bootstrap.node)
            self._connect(conversation)
        for entry in realm.entries.values():
            conversation.want(entry.key, cached=entry.held is not None)

    def _fall_back(self, realm: Realm) -> None:
        """Use further servers while the last one cannot be reached and something is lacking (gRFC A71)."""
        while (
            realm.used < len(realm.servers)
            and self._conversations[realm.present[-1]].fault is not None
            and realm.lacking
        ):
            self._use_next(realm)
        self._tell(realm, realm.entries.values())

    def _recover(self, conversation: Conversation) -> None:
        """Do without the servers that were used because this one could not be reached."""
        well = conversation.fault is None
        conversation.heard()
        for realm in self._realms.values():
            if conversation.server not in realm.present:
                continue
            kept = realm.servers.index(conversation.server) + 1
            for server in realm.servers[kept : realm.used]:
                for key in realm.entries:
                    self._conversations[server].leave(key)
            if not well or kept < realm.used:
                realm.used = kept
                self._tell(realm, realm.entries.values())

    def _forget_idle(self, realm: Realm) -> None:
        for key in [key for key, entry in realm.entries.items() if not entry.watchers]:
            del realm.entries[key]
            for server in realm.present:
                self._conversations[server].leave(key)
        if not realm.entries:
            realm.used = 0

    # --- Resources

    def _take(
        self, conversation: Conversation, kind: ResourceType[Any], topic: Topic, response: Response, now: float
    ) -> None:
        found = {name: self._find(Key(kind.type_url, name)) for name in sorted(topic.names)}
        delivery = Delivery(kind=kind, response=response, server=conversation.server, now=now, word=self._fault)
        refusal = deliver(delivery, topic, {name: entry for name, (_, entry) in found.items()})
        conversation.answer(topic, response.nonce, refusal, response.version)
        for realm, entry in found.values():
            self._tell(realm, (entry,))

    def _miss(self, conversation: Conversation, key: Key, now: float) -> None:
        """Give up waiting for a resource, unless another server has sent it."""
        realm, entry = self._find(key)
        if entry.held is not None:
            return
        if Feature.RESOURCE_TIMER_IS_TRANSIENT_ERROR in conversation.server.features:
            standing, fault = Standing.TIMEOUT, self._fault(Trouble.SLOW, key, "was not sent in time")
        else:
            standing, fault = Standing.DOES_NOT_EXIST, self._fault(Trouble.NOT_FOUND, key, "does not exist")
        entry.suffer(standing, Setback(fault=fault, version="", at=now), drop=False)
        self._tell(realm, (entry,))

    def _find(self, key: Key) -> tuple[Realm, Entry]:
        """Return a resource that is subscribed to at some server."""
        parsed = parse_name(key.name, key.type_url)
        realm = self._realms[parsed.authority if parsed else None]
        return realm, realm.entries[key]

    def _has(self, key: Key) -> bool:
        return self._find(key)[1].held is not None

    def _tell(self, realm: Realm, entries: Iterable[Entry]) -> None:
        """Tell watchers what they do not know yet."""
        unreachable = self._conversations[realm.present[-1]].fault if realm.used else None
        for entry in entries:
            view = entry.view(unreachable)
            events = tuple(events_between(entry.told, view))
            entry.told = view
            self._effects += [Notify(watcher, event) for watcher in entry.watchers for event in events]

    def _fault(self, trouble: Trouble, key: Key, words: str) -> Fault:
        kind = key.type_url.rpartition(".")[2]
        return Fault(trouble, self._signed(f"{kind} '{printable(key.name)}' {words}"))

    def _signed(self, text: str) -> str:
        return f"{text} (xDS node '{printable(self._bootstrap.node.id)}')"

    def _done(self) -> tuple[Effect, ...]:
        effects, self._effects = tuple(self._effects), []
        return effects
