"""Reads the objects of a cluster into a library, and follows them.

Nothing is in force before every kind was listed once, or is known to be forbidden or absent. Later, while the API
server is away, what was known last stays in force.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

import structlog

from authplane.core.holdoff import Holdoff
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.resources.file_documents import Source
from authplane.resources.loaded_resources import Loaded
from authplane.runtime.background import beside
from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.run_until_stopped import first_of
from authplane.runtime.without_collection import without_collection
from authplane.sources.document_versions import Library
from authplane.sources.kubernetes.api_kinds import SELECTED, UNUSABLE_SECRETS, ApiKind, api_kinds
from authplane.sources.kubernetes.cluster_objects import SHELVED, ClusterObjects
from authplane.sources.kubernetes.forbidden_kinds import Withheld, withhold
from authplane.sources.kubernetes.object_classes import GATEWAY_CLASSES
from authplane.sources.kubernetes.object_documents import object_source
from authplane.sources.kubernetes.recent_changes import RecentChanges
from authplane.sources.kubernetes.reflector import Changes, Reflector, Scope
from authplane.sources.kubernetes.reflector_steps import Absent, Forbidden, Pending, Put, Standing
from authplane.sources.runtime.follow_kind import follow_kind
from authplane.sources.runtime.last_good_store import Gone, LastGood, State
from authplane.sources.runtime.read_folder import LOOSEN_AFTER, Progress

_log: Final = structlog.stdlib.get_logger()

QUIET: Final = 0.05
"""A burst of changes is over after so many seconds without one."""
LONGEST: Final = 0.25
"""A burst is cut after so many seconds."""
_TELL: Final = 1.0
_KEEP_AGAIN: Final = 60.0
"""After so many seconds versions are written again, if the disk did not take them."""
_AFTER_A_FAULT: Final = 5.0
_UNREACHABLE: Final = 8.0
"""Seconds after which an API server that has answered nothing is not waited for by commands that end."""

Observe: TypeAlias = Callable[[Ref, str, Mapping[str, Any] | None], None]
"""Takes an object with its path, whole as the API server has it; None if it is gone."""


POLICY_KINDS: Final = frozenset(
    {
        *("Service", "Secret", "ConfigMap", "EndpointSlice", "Gateway", "ReferenceGrant", "BackendTLSPolicy"),
        *("AccessPolicy", "XAccessPolicy", "Backend", "XBackend", "AuthplaneConfiguration"),
    }
)
"""The kinds by which a policy server decides."""


class ClusterError(Exception):
    """The cluster cannot be read; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPart:
    """Which objects are read."""

    namespaces: tuple[str, ...] = ()
    """Without any, all."""
    selector: str = ""
    """Labels of the HTTPProxies, Gateways and routes that are read."""
    kinds: frozenset[str] | None = None
    """None for all."""

    def followed(self) -> Iterator[tuple[ApiKind, Scope]]:
        """Return the kinds that are read, each in its scopes."""
        for kind in (GATEWAY_CLASSES, *api_kinds()):
            if self.kinds is None or kind.kind in self.kinds:
                yield from ((kind, scope) for scope in self.scopes(kind))

    def scopes(self, kind: ApiKind) -> Iterator[Scope]:
        """Return the scopes in which a kind is followed."""
        labels = self.selector if kind.kind in SELECTED else ""
        fields = UNUSABLE_SECRETS if kind.kind == "Secret" else ""
        everywhere = not self.namespaces or kind.kind == GATEWAY_CLASSES.kind
        for namespace in ("",) if everywhere else self.namespaces:
            yield Scope(namespace=namespace, labels=labels, fields=fields)


class ClusterSource:
    """The objects of a cluster, or of a part of it, and the library of what they say."""

    def __init__(
        self,
        client: ApiClient,
        part: ClusterPart,
        *,
        loosen_after: float = LOOSEN_AFTER,
        state_dir: Path | None = None,
        observe: Observe | None = None,
    ) -> None:
        self._client = client
        self._observe = observe
        self.root: Final = root_of(client.server, part)
        self._last_good = None if state_dir is None else LastGood(state_dir, self.root)
        self._kept, self._keep_at = False, 0.0
        self._withheld: frozenset[Withheld] = frozenset()
        self.library: Final = Library(self._demand, object_source, at_once=False)
        # Who does not read classes serves no Gateways, and needs all of them as targets of policies.
        self._objects = ClusterObjects(self.library, classes=part.kinds is None or GATEWAY_CLASSES.kind in part.kinds)
        self._recent = RecentChanges(loosen_after)
        self._reflectors = [Reflector(kind, scope) for kind, scope in part.followed()]
        self._standings: dict[Reflector, Standing] = {each: each.standing for each in self._reflectors}
        self._troubles: dict[Reflector, str] = {}
        self._news = asyncio.Event()
        self._begun = False

    def _demand(self, loaded: Loaded) -> Loaded:
        return withhold(loaded, self._withheld)

    @asynccontextmanager
    async def reading(self, progress: Progress) -> AsyncGenerator[None]:
        """Follow all kinds while the block runs; it is entered when each was listed once."""
        self._restore()
        async with owned_tasks() as tasks:
            running = [tasks.create_task(self._follow(each)) for each in self._reflectors]
            try:
                with without_collection():
                    await self._first_lists(progress)
                self._begun = True
                self._settle()
                yield
            finally:
                for task in running:
                    task.cancel()

    async def changes(self, *, poll: bool = False) -> AsyncGenerator[float]:  # noqa: ARG002 (for folders)
        """Yield once for each burst of changes, when the library has them: when the burst began."""
        clock = asyncio.get_running_loop().time
        holdoff = Holdoff(QUIET, LONGEST)
        await self.keep()
        while True:
            due = _earliest(holdoff.due(), self._due())
            if await self._told(None if due is None else due - clock()):
                holdoff.changed(clock())
            due = _earliest(holdoff.due(), self._due())
            if due is not None and clock() >= due:
                began = holdoff.rebuilt() or due
                if self._settle():
                    yield began
                await self.keep()

    def anything(self) -> bool:
        """Tell whether the API server has answered about any kind."""
        return any(not isinstance(each.standing, Pending) for each in self._reflectors)

    def troubles(self) -> Collection[str]:
        """Say what keeps kinds from being read at the moment."""
        return dict.fromkeys(each.trouble for each in self._reflectors if each.trouble)

    async def keep(self) -> None:
        """Write the versions in force to disk, for the next start."""
        clock = asyncio.get_running_loop().time
        if self._last_good is None or clock() < self._keep_at:
            return
        written = self._kept and await self._write(self.library.unsaved(), everything=False)
        self._kept = written or await self._write(self.library.in_force(), everything=True)
        self._keep_at = 0.0 if self._kept else clock() + _KEEP_AGAIN

    async def _write(self, changed: Mapping[str, Source | None], *, everything: bool) -> bool:
        last_good = self._last_good
        if last_good is None or not (everything or changed):
            return True
        files = {file: source.pieces if source.usable else None for file, source in changed.items() if source}
        state, gone = State(files, {}), Gone(changed.keys() - files.keys())
        return await beside(lambda: last_good.write(state, gone, everything=everything))

    def _restore(self) -> None:
        """Begin with the last good versions on disk, if there are any."""
        state = self._last_good.read() if self._last_good is not None else None
        if state is not None:
            self._kept = True
            self.library.restore(state.files)
            self._objects.restored({file: pieces[0][1] for file, pieces in state.files.items() if pieces})

    async def _first_lists(self, progress: Progress) -> None:
        clock = asyncio.get_running_loop().time
        told = clock()
        while waiting := [each for each in self._reflectors if isinstance(each.standing, Pending)]:
            await self._told(_TELL)
            if clock() - told >= _TELL:
                told = clock()
                progress(len(self._reflectors) - len(waiting), len(self._reflectors))

    async def _told(self, seconds: float | None) -> bool:
        """Wait for a change, at most so long; tell whether there is one."""
        try:
            async with asyncio.timeout(None if seconds is None else max(0.0, seconds)):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    async def _follow(self, reflector: Reflector) -> None:
        while True:
            try:
                await follow_kind(reflector, self._client, self._take)
            except Exception as error:  # noqa: BLE001 (a fault of ours must not end what serves)
                _log.error("failed to follow a kind; trying again", kind=reflector.kind.resource, error=place_of(error))
            await asyncio.sleep(_AFTER_A_FAULT)

    def _take(self, reflector: Reflector, changes: Changes) -> None:
        kind, now = reflector.kind, asyncio.get_running_loop().time()
        dirty = False
        for change in changes:
            file = self._objects.take(kind, change)
            if file is not None:
                dirty = True
                if self._begun:
                    self._recent.add(file, now)
            if self._observe is not None and kind.kind not in SHELVED:
                self._observe(
                    Ref(kind.kind, change.name.namespace or "default", change.name.name),
                    f"{kind.path(reflector.version, change.name.namespace)}/{change.name.name}",
                    change.object if isinstance(change, Put) else None,
                )
        if self._stands_otherwise(reflector) or dirty or kind is GATEWAY_CLASSES:
            self._news.set()

    def _stands_otherwise(self, reflector: Reflector) -> bool:
        trouble, known = reflector.trouble, self._troubles.get(reflector, "")
        if trouble != known:
            self._troubles[reflector] = trouble
            if isinstance(reflector.standing, Absent):
                _log.info("the cluster does not have a kind", kind=reflector.kind.resource)
            elif trouble:
                _log.warning("cannot follow a kind of the cluster", kind=reflector.kind.resource, why=trouble)
            elif known:
                _log.info("following a kind of the cluster again", kind=reflector.kind.resource)
        before, standing = self._standings[reflector], reflector.standing
        if before == standing:
            return False
        self._standings[reflector] = standing
        if not isinstance(standing, Pending | Forbidden):
            # What may not be listed may still be there.
            for _ in self._objects.listed(reflector.kind, reflector.scope.namespace):
                pass
        return True

    def _settle(self) -> bool:
        """Put into force what can be; tell whether anything is another now."""
        fresh = self._recent.fresh(asyncio.get_running_loop().time())
        changed = self.library.settle(fresh)
        if self._objects.reclassify():
            changed = self.library.settle(fresh) or changed
        withheld = frozenset(
            Withheld.of(each.kind, each.standing.verb, each.scope.namespace)
            for each in self._reflectors
            if isinstance(each.standing, Forbidden)
        )
        if withheld != self._withheld:
            self._withheld = withheld
            self.library.reconsider()
            changed = True
        return changed

    def _due(self) -> float | None:
        return self._recent.due(each.file for each in self.library.current().held)


async def read_once(client: ApiClient, part: ClusterPart, limit: float = 120.0) -> Loaded:
    """Return what is in a cluster now; raises `ClusterError` if the API server does not answer soon."""
    source = ClusterSource(client, part)
    loaded: Loaded | None = None

    async def read() -> None:
        nonlocal loaded
        async with source.reading(lambda _done, _of: None):
            loaded = source.library.current()

    async def give_up() -> None:
        await asyncio.sleep(_UNREACHABLE)
        if not source.anything():
            return
        await asyncio.sleep(limit)

    await first_of(read, give_up)
    if loaded is None:
        troubles = sorted(source.troubles())
        raise ClusterError(
            troubles[0]
            if troubles
            else f"The API server did not send all objects within {limit:g} s. Check its load and the network."
        )
    return loaded


def root_of(server: str, part: ClusterPart) -> Path:
    """Return a path that names a part of a cluster, by which versions on disk and running programs are found."""
    address = urlsplit(server)
    scope = "+".join(sorted(part.namespaces)) or "all"
    selector = f"+{part.selector}" if part.selector else ""
    return (
        Path("/kubernetes") / quote(f"{address.netloc}{address.path}", safe="") / quote(f"{scope}{selector}", safe="+")
    )


def _earliest(*times: float | None) -> float | None:
    return min((each for each in times if each is not None), default=None)
