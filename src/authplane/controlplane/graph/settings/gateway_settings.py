"""Settings of the whole gateway, from an AuthplaneConfiguration and from Contour's configuration."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from authplane.controlplane.graph.model.graph_model import DEFAULT_CONNECTIONS, ConnectionSettings
from authplane.controlplane.graph.model.upstreams import NO_BREAKERS, NO_LIMITS, Breakers, TlsLimits
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.settings_places import (
    Place,
    Spec,
    broken_settings,
    settings_places,
    unusable_words,
)
from authplane.core.names import ObjectName
from authplane.core.problems import Path
from authplane.core.timeouts import Disabled, Timeout, UseDefault, parse_timeout
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.configuration import AuthplaneConfiguration, Listeners
from authplane.resources.kinds.contour_policies import Authorization, CircuitBreakers, NamespacedName
from authplane.resources.kinds.contour_settings import ContourSettings, TimeoutSettings, UpstreamTlsSettings

T = TypeVar("T")


class Disabling(StrEnum):
    """Which HTTPProxies may disable authorization."""

    ANYONE = "Anyone"
    ROOT_NAMESPACE = "RootNamespace"
    NOBODY = "Nobody"


class ExternalNames(StrEnum):
    """Where ExternalName Services may lead."""

    NOWHERE = "nowhere"
    ELSEWHERE = "elsewhere"
    """Not to this machine, its link or the cluster."""
    ANYWHERE = "anywhere"


class BackendUrls(StrEnum):
    """Which URLs Backends may have. None of them allows addresses of the link or of cloud metadata."""

    ALLOW = "Allow"
    """Also without TLS, and also this machine."""
    HTTPS_ONLY = "HTTPSOnly"
    """Hosts outside that prove their names by certificates, as with ``hostname``."""
    DENY = "Deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """Which names outside may be used."""

    allowed: ExternalNames = ExternalNames.ELSEWHERE
    cluster_domain: str = "cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is set once."""

    listeners: Listeners = Listeners()
    connections: ConnectionSettings = DEFAULT_CONNECTIONS
    connect_timeout: Timeout = UseDefault()
    breakers: Breakers = NO_BREAKERS
    upstream_tls: TlsLimits = NO_LIMITS
    downstream_tls: TlsLimits = NO_LIMITS
    """The TLS limits of every host and listener; a host can be stricter."""
    global_authorization: Authorization | None = None
    client_certificate: ObjectName | None = None
    fallback_certificate: ObjectName | None = None
    root_namespaces: frozenset[str] = frozenset()
    """Empty is all."""
    ingress_classes: frozenset[str] = frozenset()
    """The ingress classes whose HTTPProxies are served; empty means those without a class, and Contour's."""
    permit_insecure: bool = True
    route_names: NameRules = NameRules(allowed=ExternalNames.NOWHERE)
    """For ExternalName Services of routes."""
    names: NameRules = NameRules()
    """For ExternalName Services of ExtensionServices, and for hosts of Backends."""
    backend_urls: BackendUrls = BackendUrls.ALLOW
    insecure_authorization: bool = False
    extension_grants: bool = False
    """An ExtensionService of another namespace needs a grant."""
    may_fail_open: bool = True
    disabling: Disabling = Disabling.ANYONE
    longest_check: Timeout = UseDefault()
    """The longest response timeout that an HTTPProxy may set; the default is any."""


DEFAULTS: Final = Settings()


def read_settings(
    resources: Resources, reports: Reports, *, backend_urls: BackendUrls = BackendUrls.ALLOW
) -> Settings | None:
    """Return the settings; None means that the configuration cannot be used, and then nothing is served.

    ``backend_urls`` applies if the configuration does not set it. The author of a folder owns the machine, so all is
    allowed. A cluster has authors who do not: there, `BackendUrls.HTTPS_ONLY` keeps a Backend from reaching what only
    Envoy's machine can reach.
    The defaults apply only without a configuration: they are open to other machines, which the author of an invalid
    configuration may have wanted to prevent.
    """
    configuration = resources.configuration
    written = _Written(resources, reports)
    ours = configuration.spec.contour if configuration is not None else ContourSettings()
    enabled = written.agreed(("enableExternalNameService",), lambda spec: spec.enable_external_name_service)
    settings = Settings(
        listeners=configuration.spec.listeners if configuration is not None else Listeners(),
        connections=_connections(written),
        connect_timeout=written.timeout("connectTimeout", lambda given: given.connect_timeout, endless=False),
        breakers=build_breakers(written.agreed(("envoy", "cluster", "circuitBreakers"), _written_breakers)),
        upstream_tls=written.tls(("envoy", "cluster", "upstreamTLS"), lambda spec: spec.envoy.cluster.upstream_tls),
        downstream_tls=written.tls(("envoy", "listener", "tls"), lambda spec: spec.envoy.listener.tls),
        global_authorization=written.agreed(("globalExtAuth",), lambda spec: spec.global_ext_auth),
        client_certificate=_name(written.agreed(("envoy", "clientCertificate"), _written_client_certificate)),
        fallback_certificate=_name(
            written.agreed(("httpproxy", "fallbackCertificate"), lambda spec: spec.httpproxy.fallback_certificate)
        ),
        root_namespaces=written.agreed(("httpproxy", "rootNamespaces"), _written_root_namespaces) or frozenset(),
        ingress_classes=written.agreed(("ingress", "classNames"), _written_ingress_classes) or frozenset(),
        permit_insecure=not written.agreed(
            ("httpproxy", "disablePermitInsecure"), lambda spec: spec.httpproxy.disable_permit_insecure
        ),
        route_names=_name_rules(bool(enabled), ours),
        names=_name_rules(enabled is not False, ours),
        backend_urls=_backend_urls(configuration, backend_urls),
        insecure_authorization=ours.allow_insecure_authorization,
        extension_grants=ours.require_extension_grants,
        may_fail_open=ours.allow_fail_open,
        disabling=Disabling(ours.disabling),
        longest_check=written.longest_check(),
    )
    return None if unusable_configuration(resources, reports) else settings


def unusable_configuration(resources: Resources, reports: Reports) -> str:
    """Name the configuration that cannot be used; empty if there is none."""
    wrong = {place.ref for place in settings_places(resources) if reports.of(place.ref).errors}
    return unusable_words(broken_settings(resources) | wrong)


class _Written:
    """The settings that may be in several places, if they are the same there."""

    def __init__(self, resources: Resources, reports: Reports) -> None:
        self._reports = reports
        self._places = tuple(settings_places(resources))

    def agreed(self, path: Path, read: Callable[[Spec], T | None]) -> T | None:
        """Return the one value of a field; two that differ are an error of our own configuration."""
        return self._one(path, [(place, read(place.spec)) for place in self._places])

    def timeout(self, field: str, read: Callable[[TimeoutSettings], str], *, endless: bool = True) -> Timeout:
        """Return a timeout; only ``endless`` ones may be ``infinity``."""
        path = ("envoy", "timeouts", field)
        given: list[tuple[Place, Timeout | None]] = [
            (place, self._parsed(place, path, read(place.spec.envoy.timeouts), endless=endless))
            for place in self._places
        ]
        agreed = self._one(path, given)
        return UseDefault() if agreed is None else agreed

    def tls(self, path: Path, read: Callable[[Spec], UpstreamTlsSettings | None]) -> TlsLimits:
        """Return what TLS may negotiate, to upstreams or with clients."""
        given = self.agreed(path, read)
        if given is None:
            return NO_LIMITS
        minimum = given.minimum_protocol_version or NO_LIMITS.minimum
        maximum = given.maximum_protocol_version or NO_LIMITS.maximum
        if maximum < minimum:
            for place in self._places:
                if read(place.spec) is not None:
                    wrong = (
                        "The minimum protocol version is greater than the maximum protocol version. Change one of them."
                    )
                    self._add(place, path, "TLSConfigNotValid", wrong)
        return TlsLimits(minimum=minimum, maximum=maximum, ciphers=given.cipher_suites, curves=given.ecdh_curves)

    def longest_check(self) -> Timeout:
        """Return the longest response timeout that may be set; infinity is no limit."""
        for place in self._places:
            if isinstance(place.spec, ContourSettings):
                parsed = self._parsed(place, ("maxResponseTimeout",), place.spec.max_response_timeout, endless=True)
                return UseDefault() if parsed is None or isinstance(parsed, Disabled) else parsed
        return UseDefault()

    def _one(self, path: Path, given: Sequence[tuple[Place, T]]) -> T | None:
        found = [(place, value) for place, value in given if value is not None]
        if not found:
            return None
        place, value = found[0]
        for other, another in found[1:]:
            if another != value:
                self._add(
                    place,
                    path,
                    "FieldConflict",
                    f"{place.name(path)} and {other.name(path)} differ. Set the field once, or to the same value.",
                )
        return value

    def _parsed(self, place: Place, path: Path, text: str, *, endless: bool) -> Timeout | None:
        if not text:
            return None
        parsed = parse_timeout(text)
        if parsed is None:
            wrong = f'unable to parse timeout string "{text}": time: invalid duration "{text}". Use one such as "10s".'
            self._add(place, path, "TimeoutPolicyNotValid", wrong)
        elif isinstance(parsed, Disabled) and not endless:
            self._add(
                place,
                path,
                "TimeoutPolicyNotValid",
                f'"{text}" is not allowed: this timeout cannot be disabled. Set a duration.',
            )
        return parsed

    def _add(self, place: Place, path: Path, reason: str, message: str) -> None:
        problems = self._reports.of(place.ref)
        with problems.at(*place.path(path)):
            problems.add(reason, message)


def _connections(written: _Written) -> ConnectionSettings:
    return ConnectionSettings(
        request=written.timeout("requestTimeout", lambda given: given.request_timeout),
        connection_idle=written.timeout("connectionIdleTimeout", lambda given: given.connection_idle_timeout),
        stream_idle=written.timeout("streamIdleTimeout", lambda given: given.stream_idle_timeout),
        max_connection_duration=written.timeout("maxConnectionDuration", lambda given: given.max_connection_duration),
        delayed_close=written.timeout("delayedCloseTimeout", lambda given: given.delayed_close_timeout),
        shutdown_grace_period=written.timeout(
            "connectionShutdownGracePeriod", lambda given: given.connection_shutdown_grace_period, endless=False
        ),
        trusted_hops=written.agreed(("envoy", "network", "numTrustedHops"), _written_trusted_hops) or 0,
    )


def _written_trusted_hops(spec: Spec) -> int | None:
    return spec.envoy.network.num_trusted_hops


def _written_breakers(spec: Spec) -> CircuitBreakers | None:
    return spec.envoy.cluster.circuit_breakers


def _written_client_certificate(spec: Spec) -> NamespacedName | None:
    return spec.envoy.client_certificate


def _written_root_namespaces(spec: Spec) -> frozenset[str] | None:
    return frozenset(spec.httpproxy.root_namespaces) or None


def _written_ingress_classes(spec: Spec) -> frozenset[str] | None:
    return frozenset(spec.ingress.class_names) or None


def build_breakers(given: CircuitBreakers | None) -> Breakers:
    """Return the given limits as a whole; without them, the proxy's own limits apply."""
    if given is None:
        return NO_BREAKERS
    return Breakers(
        connections=given.max_connections,
        pending_requests=given.max_pending_requests,
        requests=given.max_requests,
        retries=given.max_retries,
        connections_per_host=given.per_host_max_connections,
    )


def _backend_urls(configuration: AuthplaneConfiguration | None, default: BackendUrls) -> BackendUrls:
    written = configuration.spec.gateway.backend_urls if configuration is not None else None
    return default if written is None else BackendUrls(written)


def _name(given: NamespacedName | None) -> ObjectName | None:
    return ObjectName(given.namespace, given.name) if given is not None else None


def _name_rules(enabled: bool, ours: ContourSettings) -> NameRules:
    elsewhere = ExternalNames.ANYWHERE if ours.allow_local_external_names else ExternalNames.ELSEWHERE
    return NameRules(allowed=elsewhere if enabled else ExternalNames.NOWHERE, cluster_domain=ours.cluster_domain)
