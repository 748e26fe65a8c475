"""ExtensionServices to clusters."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from authplane.controlplane.graph.model.upstreams import (
    Balancing,
    ExtensionCluster,
    HttpVersion,
    Plaintext,
    UpstreamTls,
    VerifiedTls,
)
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import Settings, build_breakers
from authplane.controlplane.graph.tls.upstream_tls import upstream_tls
from authplane.controlplane.graph.upstreams.extension_targets import build_destinations
from authplane.controlplane.graph.upstreams.service_tls import ServiceTls
from authplane.controlplane.graph.watched_tables import tables_of, with_tables
from authplane.core.memo import Tables, Watched
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Path, Problem, Problems
from authplane.core.timeouts import Timeout, UseDefault, parse_schema_timeout
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.extension_service import ExtensionService, ExtensionServiceSpec

T = TypeVar("T")

_BALANCING: Final = {"": Balancing.ROUND_ROBIN} | {strategy.value: strategy for strategy in Balancing}
_OVER_TLS: Final = "h2"


ExtensionMemo: TypeAlias = Watched[ObjectName, tuple[ExtensionCluster | None, tuple[Problem, ...]]]


def extension_clusters(
    resources: Resources, settings: Settings, tls: ServiceTls, reports: Reports, memo: ExtensionMemo
) -> Mapping[ObjectName, ExtensionCluster]:
    """Build the cluster of every valid ExtensionService, whether or not something refers to it."""
    tables = tables_of(resources)
    memo.start((settings, resources.broken, tls))
    clusters = {}
    for name in sorted(resources.extension_services):
        cluster, problems = memo.ensure(name, tables, partial(_cluster, name, resources, settings, tls))
        reports.of(Ref("ExtensionService", name.namespace, name.name)).extend(problems)
        if cluster is not None:
            clusters[name] = cluster
    return clusters


def _cluster(
    name: ObjectName, resources: Resources, settings: Settings, tls: ServiceTls, tables: Tables
) -> tuple[ExtensionCluster | None, tuple[Problem, ...]]:
    """Build one cluster, with eyes for nothing but the tables."""
    watched = with_tables(resources, tables)
    problems = Problems()
    with problems.at("spec"):
        cluster = _build_cluster(watched, settings, watched.extension_services[name], problems)
        _demand_verification(cluster, watched, watched.extension_services[name], tls, problems)
    return None if problems.errors else cluster, tuple(problems)


def _build_cluster(
    resources: Resources, settings: Settings, extension: ExtensionService, problems: Problems
) -> ExtensionCluster:
    spec, name = extension.spec, extension.metadata.object_name
    if spec.protocol_version == "v2":
        with problems.at("protocolVersion"):
            problems.warn("IgnoredField", "Envoy does not support protocol version v2 and uses v3. Set v3.")
    protocol = _protocol(spec, problems)
    tls = _tls(resources, settings, extension, protocol, problems)
    server_name = "" if isinstance(tls, Plaintext) else tls.server_name
    limits = spec.circuit_breaker_policy
    return ExtensionCluster(
        name=f"extension/{name}",
        object_name=name,
        version=HttpVersion.HTTP1 if protocol == HttpVersion.HTTP1 else HttpVersion.HTTP2,
        tls=tls,
        # A slash is not allowed in the name of a host.
        authority=spec.authority or server_name or f"extension/{name}".replace("/", "."),
        destinations=build_destinations(resources, settings.names, extension, problems),
        balancing=_balancing(spec.load_balancer_policy.strategy, problems),
        breakers=settings.breakers if limits is None else build_breakers(limits),
        connect_timeout=settings.connect_timeout,
        response_timeout=_timeout(spec.timeout_policy.response, "response", problems),
        idle_connection_timeout=_idle_connection(spec, problems),
    )


def _demand_verification(
    cluster: ExtensionCluster, resources: Resources, extension: ExtensionService, tls: ServiceTls, problems: Problems
) -> None:
    """Report an error if a BackendTLSPolicy is for a Service that is not reached over verified TLS."""
    for index, target in enumerate(() if isinstance(cluster.tls, VerifiedTls) else extension.spec.services):
        service = resources.services.get(ObjectName(extension.metadata.namespace, target.name))
        if service is not None and tls.policies.find(service, target.port) is not None:
            with problems.at("services", index):
                problems.add(
                    "TLSUpstreamValidation",
                    f'A BackendTLSPolicy applies to Service "{service.metadata.object_name}", but this ExtensionService'
                    " does not verify the certificate of the Service. Set validation.",
                )


@dataclass(frozen=True, slots=True)
class _Written(Generic[T]):
    """A value and its path in ``spec``."""

    value: T
    path: Path


def _agreed(
    field: str, default: T | None, whole: T | None, each: Sequence[T | None], problems: Problems
) -> _Written[T] | None:
    """Return the one value of a field that may be in ``spec`` and in each of its services."""
    places: dict[Path, T | None] = {(field,): whole}
    places |= {("services", index, field): value for index, value in enumerate(each)}
    given = [_Written(value, path) for path, value in places.items() if value is not None]
    if not given:
        return None
    first = given[0]
    other = next((written for written in given if written.value != first.value), None)
    if other is not None:
        with problems.at(*other.path):
            problems.add("FieldConflict", f"{field} is set more than once, with different values. Set it once.")
    elif whole is None and len(given) < len(each) and first.value != default:
        with problems.at(*first.path):
            problems.add(
                "FieldConflict",
                f"{field} is set for some services only, but it applies to all of them. Set it in spec.",
            )
    return first


def _protocol(spec: ExtensionServiceSpec, problems: Problems) -> str:
    each = [target.protocol or None for target in spec.services]
    written = _agreed("protocol", _OVER_TLS, spec.protocol or None, each, problems)
    return written.value if written else _OVER_TLS


def _tls(
    resources: Resources, settings: Settings, extension: ExtensionService, protocol: str, problems: Problems
) -> UpstreamTls:
    spec = extension.spec
    written = _agreed("validation", None, spec.validation, [target.validation for target in spec.services], problems)
    if protocol != _OVER_TLS:
        if spec.server_name is not None:
            with problems.at("serverName"):
                problems.warn(
                    "IgnoredField",
                    f'ignoring field ".Spec.ServerName"; protocol "{protocol}" does not use TLS. Remove it.',
                )
        if written is None:
            return Plaintext()
    validation = written.value if written else None
    with problems.at(*(written.path if written else ())):
        tls = upstream_tls(
            resources, settings, extension.metadata.namespace, validation, spec.server_name or "", problems
        )
        if protocol == _OVER_TLS:
            return tls
        problems.add("InconsistentProtocol", f'upstream TLS validation not supported for "{protocol}" protocol')
        return Plaintext()


def _balancing(strategy: str, problems: Problems) -> Balancing:
    if strategy not in _BALANCING:
        with problems.at("loadBalancerPolicy", "strategy"):
            problems.warn(
                "IgnoredField",
                f'ignoring field ".Spec.LoadBalancerPolicy"; {strategy} load balancer policy is not supported for '
                "ExtensionClusters",
            )
    return _BALANCING.get(strategy, Balancing.ROUND_ROBIN)


def _idle_connection(spec: ExtensionServiceSpec, problems: Problems) -> Timeout:
    _timeout(spec.timeout_policy.idle, "idle", problems)
    if spec.timeout_policy.idle:
        with problems.at("timeoutPolicy", "idle"):
            problems.warn(
                "IgnoredField",
                'ignoring field ".Spec.TimeoutPolicy.Idle"; idle timeouts are not supported for ExtensionClusters',
            )
    return _timeout(spec.timeout_policy.idle_connection, "idleConnection", problems)


def _timeout(text: str, field: str, problems: Problems) -> Timeout:
    timeout = parse_schema_timeout(text)
    if timeout is not None:
        return timeout
    spoken = {"response": "response", "idle": "idle", "idleConnection": "idle connection"}[field]
    with problems.at("timeoutPolicy", field):
        problems.add(
            "TimeoutPolicyNotValid",
            f"spec.timeoutPolicy failed to parse: error parsing {spoken} timeout: "
            f'unable to parse timeout string "{text}": time: invalid duration "{text}"',
        )
    return UseDefault()
