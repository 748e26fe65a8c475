"""A plain client of each variant, written from the protocol alone: it shares no code with the sessions."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Protocol

from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.stream_messages import DeltaRequest, DeltaResponse, SotwRequest, SotwResponse

CLUSTER, ENDPOINT, SECRET = TypeUrl.CLUSTER, TypeUrl.ENDPOINT, TypeUrl.SECRET
LISTENER, EXTENSION, ROUTE = TypeUrl.LISTENER, TypeUrl.EXTENSION, TypeUrl.ROUTE


def refers_to(body: bytes) -> str:
    """Return the cluster that a fake listener, extension or route names after the colon."""
    return body.decode().partition(":")[2]


class Client(Protocol):
    """What the machine needs of a client."""

    held: dict[TypeUrl, dict[str, bytes]]
    names: dict[TypeUrl, set[str]]
    repeats: list[str]

    def open(self) -> None: ...
    def subscribe(self, url: TypeUrl, names: set[str]) -> None: ...


@dataclass
class _Common:
    held: dict[TypeUrl, dict[str, bytes]] = field(default_factory=lambda: {url: {} for url in TypeUrl})
    names: dict[TypeUrl, set[str]] = field(default_factory=lambda: {url: set() for url in TypeUrl})
    acked: dict[TypeUrl, dict[str, bytes]] = field(default_factory=lambda: {url: {} for url in TypeUrl})
    """What was accepted on this stream and not dropped since."""
    asked: Counter[tuple[TypeUrl, str]] = field(default_factory=Counter)
    """How often a name was asked for on this stream: each time it may come, whatever crossed the request."""
    refused: set[TypeUrl] = field(default_factory=set)
    ready: bool = False
    """The first clusters are there: listeners may be asked for."""
    started: set[TypeUrl] = field(default_factory=set)
    nonces: set[str] = field(default_factory=set)
    repeats: list[str] = field(default_factory=list)

    def _restart(self) -> None:
        self.acked = {url: {} for url in TypeUrl}
        self.asked = Counter((url, name) for url, names in self.names.items() for name in names)
        self.refused.clear()
        self.started.clear()
        self.nonces.clear()

    def _drop(self, url: TypeUrl, kept: set[str]) -> None:
        for content in (self.held[url], self.acked[url]):
            for name in content.keys() - kept:
                del content[name]

    def _check_nonce(self, nonce: str) -> None:
        assert nonce
        assert nonce not in self.nonces, f"nonce {nonce} came twice"
        self.nonces.add(nonce)

    def _note_repeat(self, url: TypeUrl, name: str, body: bytes) -> None:
        if self.acked[url].get(name) == body and url not in self.refused:
            self.asked[url, name] -= 1
            if self.asked[url, name] < 0:
                self.repeats.append(f"{url}: {name}")

    def subscribe(self, url: TypeUrl, names: set[str]) -> None:
        raise NotImplementedError

    def _follow(self, url: TypeUrl) -> None:
        """Ask for what the accepted resources lead to."""
        if url is CLUSTER:
            self.ready = True
            self.subscribe(ENDPOINT, set(self.held[CLUSTER]))
            if LISTENER not in self.started:
                self.subscribe(LISTENER, set())
        if url is LISTENER:
            self.subscribe(EXTENSION, set(self.held[LISTENER]))
            self.subscribe(ROUTE, set(self.held[LISTENER]))


@dataclass
class SotwClient(_Common):
    """Sends all names each time, and answers each response with its nonce."""

    sent: deque[SotwRequest] = field(default_factory=deque)
    version: dict[TypeUrl, str] = field(default_factory=dict)
    nonce: dict[TypeUrl, str] = field(default_factory=dict)

    def open(self) -> None:
        """Begin a stream with what is known."""
        self._restart()
        self.sent.clear()
        self.nonce.clear()
        self.subscribe(CLUSTER, set())
        for url in (ENDPOINT, SECRET, EXTENSION, ROUTE):
            # The version speaks of all names: a client that has dropped something since has none.
            if not self.names[url] or not self.names[url] <= self.held[url].keys():
                self.version.pop(url, None)
            if self.names[url]:
                self.subscribe(url, self.names[url], again=True)
        if self.ready:
            self.subscribe(LISTENER, set())

    def subscribe(self, url: TypeUrl, names: set[str], *, again: bool = False) -> None:
        """Change the names of a type."""
        if names == self.names[url] and url in self.started and not again:
            return
        self.started.add(url)
        self.asked.update((url, name) for name in names - self.names[url])
        self.names[url] = set(names)
        if url not in {CLUSTER, LISTENER}:
            self._drop(url, names)
        self._request(url)

    def take(self, response: SotwResponse, *, accept: bool) -> None:
        """Apply and accept a response, or refuse it."""
        url = response.type_url
        self._check_nonce(response.nonce)
        self.nonce[url] = response.nonce
        content = {name: item.body for name, item in response.resources}
        if not accept:
            self.refused.add(url)
            self._request(url, error="refused")
            return
        if url in {CLUSTER, LISTENER}:
            if self.acked[url] == content and url in self.version and content and url not in self.refused:
                self.repeats.append(f"{url}: the same full set")
            self.held[url], self.acked[url] = dict(content), dict(content)
        else:
            wanted = {name: body for name, body in content.items() if name in self.names[url]}
            # A cluster that changed makes the server send endpoints again.
            if url is not ENDPOINT:
                for name, body in wanted.items():
                    self._note_repeat(url, name, body)
            self.held[url] |= wanted
            self.acked[url] |= wanted
        self.version[url] = response.version
        self._follow(url)
        self._request(url)

    def _request(self, url: TypeUrl, error: str | None = None) -> None:
        self.sent.append(
            SotwRequest(
                type_url=url,
                node="model",
                names=tuple(sorted(self.names[url])),
                version=self.version.get(url, ""),
                nonce=self.nonce.get(url, ""),
                error=error,
            )
        )


@dataclass
class DeltaClient(_Common):
    """Sends changes of its subscription, and answers each response with its nonce."""

    sent: deque[DeltaRequest] = field(default_factory=deque)
    versions: dict[TypeUrl, dict[str, str]] = field(default_factory=lambda: {url: {} for url in TypeUrl})

    def open(self) -> None:
        """Begin a stream with what is known."""
        self._restart()
        self.sent.clear()
        for url in TypeUrl:
            self.versions[url] = {name: self.versions[url][name] for name in self.held[url]}
        first = [CLUSTER, *(url for url in (ENDPOINT, SECRET, EXTENSION, ROUTE) if self.names[url])]
        for url in [*first, *([LISTENER] if self.ready else [])]:
            self.started.add(url)
            self._send(url, subscribe=self.names[url], versions=self.versions[url])

    def subscribe(self, url: TypeUrl, names: set[str]) -> None:
        """Change the names of a type."""
        added, removed = names - self.names[url], self.names[url] - names
        if url in self.started and not added and not removed:
            return
        self.asked.update((url, name) for name in added)
        self.names[url] = set(names)
        if url not in {CLUSTER, LISTENER}:
            self._drop(url, names)
        first = url not in self.started
        self.started.add(url)
        if not first or added or url in {CLUSTER, LISTENER}:
            self._send(url, subscribe=names if first else added, unsubscribe=set() if first else removed)
        else:
            self.started.discard(url)

    def take(self, response: DeltaResponse, *, accept: bool) -> None:
        """Apply and accept a response, or refuse it."""
        url = response.type_url
        self._check_nonce(response.nonce)
        if not accept:
            self.refused.add(url)
            self._send(url, nonce=response.nonce, error="refused")
            return
        for name, item in response.resources:
            if url not in {CLUSTER, LISTENER} and name not in self.names[url]:
                continue
            if url is not ENDPOINT:
                self._note_repeat(url, name, item.body)
            self.held[url][name] = self.acked[url][name] = item.body
            self.versions[url][name] = item.version
        for name in response.removed:
            assert url is not EXTENSION or name not in self.acked[url], f"the filter {name} lost its configuration"
            self.held[url].pop(name, None)
            self.acked[url].pop(name, None)
        self._follow(url)
        self._send(url, nonce=response.nonce)

    def _send(  # noqa: PLR0913 - one argument a field of the request
        self,
        url: TypeUrl,
        *,
        subscribe: set[str] | None = None,
        unsubscribe: set[str] | None = None,
        versions: dict[str, str] | None = None,
        nonce: str = "",
        error: str | None = None,
    ) -> None:
        self.sent.append(
            DeltaRequest(
                type_url=url,
                node="model",
                subscribe=tuple(sorted(subscribe or ())),
                unsubscribe=tuple(sorted(unsubscribe or ())),
                initial_versions=versions or {},
                nonce=nonce,
                error=error,
            )
        )
