"""Channels to xDS targets."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import grpc
import grpc.aio

from authplane.core.values import dataclass
from authplane.dataplane.config.security import ClientTls, SystemRoots
from authplane.dataplane.filters.calls import Call, Code, Side, Stop
from authplane.dataplane.filters.registry import State
from authplane.dataplane.routing.call_routing import Routed, RouteTable, build_route_table
from authplane.dataplane.routing.channel_targets import Group
from authplane.dataplane.routing.resolver import ClientConfiguration, Failed
from authplane.dataplane.runtime.channels.channel_plan import Backends, Plan
from authplane.dataplane.runtime.connections.channel_pool import Opener
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError, Dialer
from authplane.dataplane.runtime.connections.jwt_file import token_sources
from authplane.matching.string_matchers import Exact
from authplane.xds.bootstrap.credentials import ServiceCredentials, TlsFiles
from authplane.xds.bootstrap.templates import client_listener_name
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap

SCHEME: Final = "xds:"


@dataclass(frozen=True, slots=True)
class XdsChannelCredentials:
    """Use the TLS settings of the cluster, or the fallback if it has none; None means plaintext."""

    fallback: grpc.ChannelCredentials | None


@dataclass(frozen=True, slots=True)
class XdsTarget:
    """The parts of an xDS target."""

    authority: str
    """The authority of calls."""
    listener: str


def parse_target(target: str, bootstrap: Bootstrap) -> XdsTarget:
    """Read ``xds:///name`` or ``xds://authority/name``; raises `ValueError`."""
    rest = target.removeprefix(SCHEME)
    federation = ""
    if rest.startswith("//"):
        federation, _, rest = rest[2:].partition("/")
    name = rest.removeprefix("/")
    if not name:
        raise ValueError(f"{target!r} has no name. Use xds:///name.")
    listener = client_listener_name(bootstrap, name, federation)
    if listener is None:
        raise ValueError(f"The xDS bootstrap has no authority for {target!r}. Add it to authorities.")
    return XdsTarget(authority=unquote(name.rpartition("/")[2]), listener=listener)


_LONGEST_PAUSE_MS: Final = 2000
"""Between attempts to reach an endpoint; grpcio alone waits up to two minutes after an endpoint is back."""


@dataclass(frozen=True, slots=True)
class ClientRules:
    """What the Listener and the routes of a channel say."""

    table: RouteTable
    draw: Callable[[], float]
    passes: bool
    """Whether every call goes to the same cluster without filters."""

    @classmethod
    def of(cls, table: RouteTable, draw: Callable[[], float]) -> "ClientRules":
        """Make the rules of a table of routes."""
        always = table.always
        return cls(table, draw, always is not None and not always.filters and always.stop is None)

    def route(self, call: Call) -> Routed:
        """Return the filters of a call and its route."""
        return self.table.route(call, self.draw)


@dataclass(frozen=True, slots=True)
class BackendKey:
    """What makes a channel to endpoints: equal ones are the same channel, before and after an update."""

    target: str
    policy: str
    tls: ClientTls | None


def build_plan(configuration: ClientConfiguration, state: State) -> Plan:
    """Build the filters of all routes, and tell where each cluster is."""
    table = build_route_table(configuration.manager, configuration.routes, Side.CLIENT, state, configuration.metadata)
    return Plan(
        rules=ClientRules.of(table, state.random),
        clusters={name: _backends(groups) for name, groups in configuration.clusters.items()},
        draw=state.random,
    )


def backend_keys(plan: Plan) -> frozenset[Any]:
    """Return the channels that a plan may use."""
    return frozenset(key for each in plan.clusters.values() if isinstance(each, Backends) for key in each.keys)


def failure(failed: Failed) -> Stop:
    """Return how calls fail for which there is no plan; whatever a control plane says, it is this code."""
    return Stop(code=Code.UNAVAILABLE, message=failed.details)


def _backends(groups: tuple[Group, ...] | Failed) -> Backends | Stop:
    if isinstance(groups, Failed):
        return failure(groups)
    keys = tuple(BackendKey(each.target, each.policy, each.cluster.tls) for each in groups)
    return Backends(keys=keys, drops=groups[0].drops, most=groups[0].cluster.most_requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaching:
    """How the endpoints of a channel are reached."""

    authority: str
    credentials: grpc.ChannelCredentials | XdsChannelCredentials | None
    options: tuple[tuple[str, Any], ...]
    compression: grpc.Compression | None
    providers: Mapping[str, TlsFiles]

    def opener(self, key: BackendKey) -> Opener:
        """Return how to open the channel to endpoints."""
        options = (
            # What the user says comes later, and so counts.
            ("grpc.default_authority", self.authority),
            ("grpc.service_config", json.dumps({"loadBalancingConfig": [{key.policy: {}}]})),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.max_reconnect_backoff_ms", _LONGEST_PAUSE_MS),
            *self.options,
        )
        if not isinstance(self.credentials, XdsChannelCredentials):
            return _Simple(key.target, self.credentials, options, self.compression)
        if key.tls is None:
            return _Simple(key.target, self.credentials.fallback, options, self.compression)
        return _Provided(key.target, key.tls, (*_compressing(self.compression), *options), self.providers)


def _compressing(compression: grpc.Compression | None) -> tuple[tuple[str, Any], ...]:
    """Return the option that grpcio makes of this argument."""
    return () if compression is None else (("grpc.default_compression_algorithm", int(compression)),)


class _Simple(Opener):
    """Opens channels with the credentials that the user gave."""

    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None, options: Any, compression: Any
    ) -> None:
        self._target = target
        self._credentials = credentials
        self._options = options
        self._compression = compression
        self.tokens = token_sources(credentials)

    def open(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._target, self._options, self._compression)
        return grpc.secure_channel(self._target, self._credentials, self._options, self._compression)

    async def open_aio(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._target, self._options, self._compression)
        return grpc.aio.secure_channel(self._target, self._credentials, self._options, self._compression)


class _Provided(Opener):
    """Opens channels with the certificates that a cluster names."""

    def __init__(
        self, target: str, tls: ClientTls, options: tuple[tuple[str, Any], ...], providers: Mapping[str, TlsFiles]
    ) -> None:
        self._fault, names = _name_options(tls)
        self._options = (*options, *names)
        files = _tls_files(tls, providers)
        self._dialer = Dialer(target, ServiceCredentials(channel=files))
        self.refresh = files.refresh

    def open(self) -> grpc.Channel:
        self._check()
        return self._dialer.open(self._options)

    async def open_aio(self) -> grpc.aio.Channel:
        self._check()
        return await self._dialer.open_aio(self._options)

    def changed(self) -> bool:
        return self._dialer.changed()

    def _check(self) -> None:
        if self._fault:
            raise CredentialsUnusableError(self._fault)


def _tls_files(tls: ClientTls, providers: Mapping[str, TlsFiles]) -> TlsFiles:
    # The names of providers were checked when the Cluster was read.
    ca = None if isinstance(tls.roots, SystemRoots) else providers[tls.roots.instance].ca
    identity = None if tls.identity is None else providers[tls.identity.instance].identity
    named = [
        each.instance for each in (tls.roots, tls.identity) if each is not None and not isinstance(each, SystemRoots)
    ]
    return TlsFiles(ca=ca, identity=identity, refresh=min((providers[name].refresh for name in named), default=600.0))


def _name_options(tls: ClientTls) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return what makes grpcio look for the right name in a certificate, or why it cannot."""
    if not tls.names:
        return "", ()
    if len(tls.names) == 1 and isinstance(tls.names[0], Exact) and "://" not in tls.names[0].value:
        return "", (("grpc.ssl_target_name_override", tls.names[0].value),)
    return "grpcio cannot check the subject alternative names of this cluster. Use a single exact host name.", ()
