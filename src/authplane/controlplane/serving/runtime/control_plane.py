"""The control plane of a folder or a cluster: it sends changes of documents and of issuer keys to every proxy."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from typing import Final, TypeAlias

import structlog

from authplane.controlplane.graph.model.programming import Programming
from authplane.controlplane.graph.settings.settings_places import configuration_ref
from authplane.controlplane.graph.upstreams.policy_connection import PolicyServer
from authplane.controlplane.serving.changed_keys import rekeyed
from authplane.controlplane.serving.generation import Difference, Generation, build_generation, differences
from authplane.controlplane.serving.runtime import policy_server_probe
from authplane.controlplane.serving.runtime.ads import ALL_ENVOYS, Ads, Clients, require_protection
from authplane.controlplane.serving.runtime.ads_stream import AdsEvent
from authplane.controlplane.serving.runtime.control_counts import ControlCounts, ControlView
from authplane.controlplane.serving.runtime.control_socket import NotLiveError, live_address
from authplane.controlplane.serving.runtime.native_keys import OFTEN, NativeKeys, follow_keys
from authplane.controlplane.serving.runtime.policy_server_probe import PolicyServerProbe, PolicyServerTried
from authplane.controlplane.status.policy_server_status import with_policy_server
from authplane.controlplane.status.resource_status import Status
from authplane.controlplane.status.schema_status import with_installed_schemas
from authplane.controlplane.status.status_json import Transitions
from authplane.core.envoy_releases import Release
from authplane.core.problems import Severity
from authplane.core.values import dataclass
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.policy.identity.tokens.issuer import Issuer
from authplane.policy.placement.native_issuers import native_issuers
from authplane.policy.rules.access_settings import Options
from authplane.resources.documents import Finding
from authplane.resources.loaded_resources import Held
from authplane.runtime.child_processes import place_of
from authplane.runtime.clock import now, stopwatch
from authplane.runtime.issuers.issuers import IssuerOptions
from authplane.runtime.run_until_stopped import first_of
from authplane.runtime.servers.grpc_server import Tls
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address, AddressTakenError, ListenError
from authplane.sources.kubernetes.installed_kinds import InstalledKind
from authplane.sources.runtime.document_source import DocumentSource, as_source
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.stream_messages import Acked

log: Final = structlog.stdlib.get_logger()
_NOT_SHOWN: Final = "authplane status does not show this control plane"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The folder was read, or keys were fetched, and the result is being sent to the proxies."""

    difference: Difference
    appeared: tuple[Finding, ...]
    """Problems that were not there before."""
    resolved: tuple[Finding, ...]
    """Problems that are gone."""
    seconds: float
    first: bool
    keys: bool = False
    """On account of an issuer's keys; the folder is as before."""
    held: tuple[Held, ...] = ()
    """Changes that loosen and wait since now."""


Told: TypeAlias = Rebuilt | AdsEvent | PolicyServerTried
"""The events of the control plane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """How the control plane listens and watches."""

    address: Address
    tls: Tls | None = None
    clients: Clients = ALL_ENVOYS
    """How to identify clients with certificates."""
    poll: bool = False
    """Whether to poll the files instead of waiting for the system's notifications."""
    issuers: IssuerOptions = field(default_factory=lambda: IssuerOptions(schedule=OFTEN))
    """How to fetch keys of issuers whose tokens proxies can verify."""
    wait_for_keys: float = 2.0
    """Seconds that the first generation waits for them at most.

    Proxies that another control plane has served have keys, and should not have to do without them for a while. Others
    have nothing yet, and should not have to wait for an issuer that does not answer.
    """


class Control:
    """Rebuilds when a document or a key changes, publishes, and knows the status of every resource."""

    def __init__(
        self,
        source: Folder | DocumentSource,
        tell: Callable[[Told], None],
        policy_server: PolicyServer | None = None,
        options: Options | None = None,
    ) -> None:
        self._source = as_source(source)
        self._tell = tell
        self._policy_server = policy_server
        self._ads = Ads(self._heard)
        self._transitions = Transitions()
        self._findings: frozenset[Finding] = frozenset()
        self._held: tuple[Held, ...] = ()
        self._compiler = PolicyCompiler(options)
        self._keys: NativeKeys | None = None
        self._probe = PolicyServerProbe(self._tried)
        self._listening = False
        self.counts: Final = ControlCounts()
        self.generation: Generation | None = None
        self.keeps_times = True
        """Whether the times of transitions are noted here; in a cluster, the API server has them."""
        self.installed: tuple[InstalledKind, ...] = ()
        """The kinds of the cluster, and the fields that it drops; empty for a folder."""

    @asynccontextmanager
    async def serve(self, settings: ControlSettings) -> AsyncGenerator[Address]:
        """Read all documents and serve while the block runs; the block must also run `follow`.

        The keys of issuers are fetched first, within a short limit: until the keys of an issuer are loaded, the policy
        server verifies its tokens.
        """
        require_protection(settings.address, settings.tls)
        async with self._source.reading(_progress), follow_keys(settings.issuers) as keys:
            self._keys = keys
            native = native_issuers(self._compiler.compile(self._source.library.current().resources).policies)
            keys.configure(native, _urls(native))
            await keys.tried(settings.wait_for_keys)
            self.rebuild()
            async with (
                self._ads.serve(settings.address, settings.tls, settings.clients) as address,
                self._answer_status(),
            ):
                self._listening = True
                try:
                    yield address
                finally:
                    self._listening = False

    async def follow(self, settings: ControlSettings) -> None:
        """Rebuild after each burst of changes, for ever."""
        if self._keys is None:
            raise RuntimeError("nothing is followed before it is served")
        documents, keys = self._source.changes(poll=settings.poll), self._keys.changes()
        await first_of(lambda: self._obey(documents), lambda: self._obey(keys, keys=True), self._probe.follow)

    async def _obey(self, changes: AsyncGenerator[float], *, keys: bool = False) -> None:
        clock = asyncio.get_running_loop().time
        async for began in changes:
            try:
                self.rebuild(keys=keys)
                self.counts.pushed(clock() - began)
            except Exception as error:  # noqa: BLE001 (a fault of ours must not end what serves)
                self.counts.failed += 1
                place = place_of(error)
                log.error(  # noqa: TRY400 (the message of the exception may quote a document)
                    "rebuild failed, the last configuration stays in force", error=place
                )

    def rebuild(self, *, keys: bool = False) -> None:
        """Build the next generation and publish it; ``keys`` says whether new keys are the reason."""
        elapsed = stopwatch()
        before = self.generation
        known = self._keys.take() if self._keys is not None else {}
        loaded = self._source.library.current()
        renewed = rekeyed(before, loaded, known)
        generation = renewed or build_generation(loaded, before, self._policy_server, known, self._compiler)
        # Status describes what proxies get, so it is updated only after publishing.
        self._ads.publish(generation)
        self.generation = generation
        seconds = elapsed()
        if self._keys is not None:
            # Keys that only the policy server needs are fetched too: status says which issuers give none, and why.
            policies = generation.compiled.policies
            self._keys.configure(policies.issuers, _urls(native_issuers(policies)))
        if self._policy_server is None:  # the caller monitors the one that it passes
            self._probe.configure(generation.built.policy_server)
        if renewed is None:
            self._observe()
        findings = generation.findings
        earlier, self._findings = self._findings, frozenset(findings)
        waited, self._held = self._held, loaded.held
        self._tell(
            Rebuilt(
                difference=differences(before.snapshot if before else None, generation.snapshot),
                appeared=tuple(each for each in findings if each not in earlier),
                resolved=tuple(sorted(earlier - self._findings, key=lambda finding: finding.place)),
                seconds=seconds,
                first=before is None,
                keys=keys,
                held=tuple(each for each in loaded.held if each not in waited),
            )
        )
        self.counts.built += 1

    def _heard(self, event: AdsEvent) -> None:
        """Pass on a proxy's message; ACKs are evaluated on demand, since there are many."""
        if not isinstance(event, Acked):
            self._observe()
        self.counts.heard(event)
        self._tell(event)

    def _tried(self, tried: PolicyServerTried) -> None:
        self._observe()
        self._tell(tried)

    def _observe(self) -> None:
        """Record when conditions change."""
        if self.generation is not None and self.keeps_times:
            self._transitions.observe(self.status(self.generation), now())

    def status(
        self, generation: Generation, programming: Programming | None = None, oldest: Release | None = None
    ) -> tuple[Status, ...]:
        """Return the status that a generation has with the connected proxies, of which the oldest does the least.

        With other replicas, the caller knows the answers of all proxies.
        """
        standings = self._keys.standings() if self._keys is not None else ()
        without_keys = {each.issuer: each.why for each in standings if not each.ready}
        if programming is None:
            programming, oldest = self.programming, self.oldest
        statuses = generation.status(programming, oldest, without_keys)
        configuration = generation.loaded.resources.configuration
        if configuration is None:
            return statuses
        ref = configuration_ref(configuration)
        return with_policy_server(with_installed_schemas(statuses, ref, self.installed), ref, self._probe.tried)

    @property
    def programming(self) -> Programming:
        """The answers of the connected proxies to the current configuration."""
        return self._ads.programming()

    @property
    def oldest(self) -> Release | None:
        """The oldest release of Envoy that is connected; None if it is unknown, or too old for native rules."""
        return self._ads.oldest()

    def obstacle(self) -> str:
        """Say what keeps proxies from getting a configuration; empty if nothing does."""
        return "" if self._listening else "no configuration is served yet"

    @property
    def view(self) -> ControlView:
        """The metrics besides the counters."""
        errors = (each for each in self._findings if each.problem.severity is Severity.ERROR)
        return ControlView(
            faulty_documents=len({each.ref or each.place.file for each in errors}),
            last_good=len(self.generation.loaded.last_good) if self.generation else 0,
            waiting=len(self._held),
            rejected=self._ads.rejected(),
            releases=self._ads.releases(),
            tried=self._probe.tried,
            issuers=self._keys,
        )

    @asynccontextmanager
    async def _answer_status(self) -> AsyncGenerator[None]:
        """Let ``authplane status`` find this control plane; without it everything else works."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(serve_http(live_address(self._source.root), self._respond))
            except AddressTakenError as error:
                why = "another control plane serves the same folder. Stop one of them." if error.busy else str(error)
                log.warning(_NOT_SHOWN, why=why)
            except (ListenError, NotLiveError) as error:
                log.warning(_NOT_SHOWN, why=str(error))
            yield

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.target == "/status":
            # The policy server may have started or ended since the last attempt.
            await self._probe.renew()
        if self.generation is None:
            return HttpResponse(status=404)
        match request.target:
            case "/status":
                return _page(self._transitions.records(self.status(self.generation), now()))
            case policy_server_probe.PAGE:
                return _page(policy_server_probe.given_record(self._policy_server))
            case _:
                return HttpResponse(status=404)


def _page(record: object) -> HttpResponse:
    return HttpResponse(status=200, headers=(("content-type", "application/json"),), body=json.dumps(record).encode())


def _urls(issuers: Iterable[Issuer]) -> frozenset[str]:
    return frozenset(each.url.url for each in issuers)


def _progress(done: int, total: int) -> None:
    log.info("reading resources", done=done, of=total)
