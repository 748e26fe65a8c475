"""Contour's configuration file, which says what a ContourConfiguration says with other names.

It is the key ``contour.yaml`` of a ConfigMap ``contour``, or a file by itself, without API version and kind.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar, Final

from authplane.core.names import Ref
from authplane.core.problems import Path
from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import (
    COUNT,
    Authorization,
    AuthPolicy,
    CircuitBreakers,
    ExtensionRef,
    HttpSettings,
    NamespacedName,
    RequestBody,
)
from authplane.resources.kinds.contour_settings import (
    CIPHERS,
    CURVES,
    HOPS,
    TLS_VERSION,
    ClusterSettings,
    ContourConfigurationSpec,
    EnvoySettings,
    HTTPProxySettings,
    ListenerSettings,
    NetworkSettings,
    TimeoutSettings,
    UpstreamTlsSettings,
)
from authplane.resources.typed.schema import Filled, Named, OneOf, Upstream

CONFIG_MAP: Final = "contour"
"""What the name of the ConfigMap has in it, if it cannot be read."""
KEY: Final = "contour.yaml"
"""The name of the file, and its key in the ConfigMap."""
GLOBAL: Final = "globalExtAuth"
"""The setting that must not be overlooked."""
BARE: Final = "ContourFile"
"""The kind in problems of a file that is not in a ConfigMap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourFile:
    """A configuration file of Contour as a ContourConfiguration would say it."""

    ref: Ref
    """The ConfigMap, or the file itself."""
    above: Path
    """The field of the ConfigMap that contains the file; empty for the file itself."""
    spec: ContourConfigurationSpec


def path_in_file(path: Path) -> Path:
    """Return where the file has what a ContourConfiguration has at a path of its ``spec``."""
    renamed = next((new for old, new in _MOVED.items() if path[: len(old)] == old), None)
    if renamed is not None:
        return renamed
    if path[:2] in {("envoy", "timeouts"), ("envoy", "cluster")}:
        return tuple(_kebab(step) if isinstance(step, str) else step for step in path[1:])
    return path


_MOVED: Final[Mapping[Path, Path]] = {
    ("envoy", "clientCertificate"): ("tls", "envoy-client-certificate"),
    ("envoy", "cluster", "upstreamTLS"): ("cluster", "upstream-tls"),
    ("envoy", "listener", "tls"): ("tls",),
    ("envoy", "network", "numTrustedHops"): ("network", "num-trusted-hops"),
    ("httpproxy", "fallbackCertificate"): ("tls", "fallback-certificate"),
    ("httpproxy", "disablePermitInsecure"): ("disablePermitInsecure",),
    (GLOBAL, "extensionRef"): (GLOBAL, "extensionService"),
}


def _kebab(name: str) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() else each for each in name)


# --- What is written


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenGlobal:
    """``globalExtAuth``: as in a ContourConfiguration, but for the reference."""

    extension_service: str = ""
    """Namespace and name, with a slash between them."""
    service_type: Annotated[str, OneOf(("", "grpc", "http"))] = ""
    http_settings: HttpSettings | None = None
    auth_policy: AuthPolicy | None = None
    fail_open: bool = False
    response_timeout: str = ""
    with_request_body: RequestBody | None = None

    @property
    def meant(self) -> Authorization:
        """What a ContourConfiguration would say."""
        namespace, _, name = self.extension_service.rpartition("/")
        return Authorization(
            extension_ref=ExtensionRef(namespace=namespace or "default", name=name),
            service_type=self.service_type,
            http_settings=self.http_settings,
            auth_policy=self.auth_policy,
            fail_open=self.fail_open,
            response_timeout=self.response_timeout,
            with_request_body=self.with_request_body,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTls:
    """``tls``: certificates, and what clients may negotiate."""

    minimum_protocol_version: Annotated[str, TLS_VERSION, Named("minimum-protocol-version")] = ""
    maximum_protocol_version: Annotated[str, TLS_VERSION, Named("maximum-protocol-version")] = ""
    cipher_suites: Annotated[tuple[Annotated[str, CIPHERS], ...], Named("cipher-suites")] = ()
    ecdh_curves: Annotated[tuple[Annotated[str, CURVES], ...], Named("ecdh-curves")] = ()
    fallback_certificate: Annotated[NamespacedName | None, Named("fallback-certificate")] = None
    client_certificate: Annotated[NamespacedName | None, Named("envoy-client-certificate")] = None

    UPSTREAM: ClassVar = Upstream(ignored=("fingerprint",))

    @property
    def meant(self) -> ListenerSettings:
        """What a ContourConfiguration would say of its listeners."""
        limits = UpstreamTlsSettings(
            minimum_protocol_version=self.minimum_protocol_version,
            maximum_protocol_version=self.maximum_protocol_version,
            cipher_suites=self.cipher_suites,
            ecdh_curves=self.ecdh_curves,
        )
        return ListenerSettings(tls=None if limits == UpstreamTlsSettings() else limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTimeouts:
    """``timeouts``."""

    request_timeout: Annotated[str, Named("request-timeout")] = ""
    connection_idle_timeout: Annotated[str, Named("connection-idle-timeout")] = ""
    stream_idle_timeout: Annotated[str, Named("stream-idle-timeout")] = ""
    max_connection_duration: Annotated[str, Named("max-connection-duration")] = ""
    delayed_close_timeout: Annotated[str, Named("delayed-close-timeout")] = ""
    connection_shutdown_grace_period: Annotated[str, Named("connection-shutdown-grace-period")] = ""
    connect_timeout: Annotated[str, Named("connect-timeout")] = ""

    @property
    def meant(self) -> TimeoutSettings:
        """What a ContourConfiguration would say."""
        return TimeoutSettings(
            request_timeout=self.request_timeout,
            connection_idle_timeout=self.connection_idle_timeout,
            stream_idle_timeout=self.stream_idle_timeout,
            max_connection_duration=self.max_connection_duration,
            delayed_close_timeout=self.delayed_close_timeout,
            connection_shutdown_grace_period=self.connection_shutdown_grace_period,
            connect_timeout=self.connect_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBreakers:
    """``cluster.circuit-breakers``."""

    max_connections: Annotated[int, COUNT, Named("max-connections")] = 0
    max_pending_requests: Annotated[int, COUNT, Named("max-pending-requests")] = 0
    max_requests: Annotated[int, COUNT, Named("max-requests")] = 0
    max_retries: Annotated[int, COUNT, Named("max-retries")] = 0
    per_host_max_connections: Annotated[int, COUNT, Named("per-host-max-connections")] = 0

    @property
    def meant(self) -> CircuitBreakers:
        """What a ContourConfiguration would say."""
        return CircuitBreakers(
            max_connections=self.max_connections,
            max_pending_requests=self.max_pending_requests,
            max_requests=self.max_requests,
            max_retries=self.max_retries,
            per_host_max_connections=self.per_host_max_connections,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenUpstreamTls:
    """``cluster.upstream-tls``."""

    minimum_protocol_version: Annotated[str, TLS_VERSION, Named("minimum-protocol-version")] = ""
    maximum_protocol_version: Annotated[str, TLS_VERSION, Named("maximum-protocol-version")] = ""
    cipher_suites: Annotated[tuple[Annotated[str, CIPHERS], ...], Named("cipher-suites")] = ()
    ecdh_curves: Annotated[tuple[Annotated[str, CURVES], ...], Named("ecdh-curves")] = ()

    @property
    def meant(self) -> UpstreamTlsSettings:
        """What a ContourConfiguration would say."""
        return UpstreamTlsSettings(
            minimum_protocol_version=self.minimum_protocol_version,
            maximum_protocol_version=self.maximum_protocol_version,
            cipher_suites=self.cipher_suites,
            ecdh_curves=self.ecdh_curves,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCluster:
    """``cluster``."""

    circuit_breakers: Annotated[WrittenBreakers | None, Named("circuit-breakers")] = None
    upstream_tls: Annotated[WrittenUpstreamTls | None, Named("upstream-tls")] = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("dns-lookup-family", "max-requests-per-connection", "per-connection-buffer-limit-bytes")
    )

    @property
    def meant(self) -> ClusterSettings:
        """What a ContourConfiguration would say."""
        return ClusterSettings(
            circuit_breakers=self.circuit_breakers.meant if self.circuit_breakers is not None else None,
            upstream_tls=self.upstream_tls.meant if self.upstream_tls is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenNetwork:
    """``network``."""

    num_trusted_hops: Annotated[int | None, HOPS, Named("num-trusted-hops")] = None

    UPSTREAM: ClassVar = Upstream(ignored=("admin-port",))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """The whole file."""

    global_ext_auth: Annotated[WrittenGlobal | None, Filled()] = None
    tls: WrittenTls = field(default_factory=WrittenTls)
    timeouts: WrittenTimeouts = field(default_factory=WrittenTimeouts)
    cluster: WrittenCluster = field(default_factory=WrittenCluster)
    network: WrittenNetwork = field(default_factory=WrittenNetwork)
    disable_permit_insecure: bool | None = None
    enable_external_name_service: bool | None = None

    UPSTREAM: ClassVar = Upstream(
        silent=("incluster", "ingress-status-address", "kubeconfig", "kubernetesClientBurst", "kubernetesClientQPS",
                "metrics", "server"),
        ignored=("accesslog-format", "accesslog-format-string", "accesslog-level", "compression",
                 "default-http-versions", "disableAllowChunkedLength", "disableMergeSlashes", "envoy-service-name",
                 "envoy-service-namespace", "featureFlags", "gateway", "json-fields", "listener",
                 "omEnforcedHealthListener", "policy", "rateLimitService", "runtime-settings",
                 "serverHeaderTransformation", "tracing"),
    )  # fmt: skip

    @property
    def meant(self) -> ContourConfigurationSpec:
        """What a ContourConfiguration would say."""
        return ContourConfigurationSpec(
            global_ext_auth=self.global_ext_auth.meant if self.global_ext_auth is not None else None,
            httpproxy=HTTPProxySettings(
                disable_permit_insecure=self.disable_permit_insecure,
                fallback_certificate=self.tls.fallback_certificate,
            ),
            envoy=EnvoySettings(
                client_certificate=self.tls.client_certificate,
                timeouts=self.timeouts.meant,
                cluster=self.cluster.meant,
                listener=self.tls.meant,
                network=NetworkSettings(num_trusted_hops=self.network.num_trusted_hops),
            ),
            enable_external_name_service=self.enable_external_name_service,
        )
