"""Contour's settings for the whole process, in a ContourConfiguration or in ours."""

from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.contour_policies import DNS_NAME, Authorization, CircuitBreakers, NamespacedName
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import Filled, Length, Named, OneOf, Range, Upstream

TLS_VERSION: Final = OneOf(("", "1.2", "1.3"))
CIPHERS: Final = OneOf(
    (
        "[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]",
        "[ECDHE-RSA-AES128-GCM-SHA256|ECDHE-RSA-CHACHA20-POLY1305]",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-RSA-AES128-SHA",
        "AES128-GCM-SHA256",
        "AES128-SHA",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES256-SHA",
        "ECDHE-RSA-AES256-SHA",
        "AES256-GCM-SHA384",
        "AES256-SHA",
    )
)
HOPS: Final = Range(0, 100)
"""Maximum number of proxies in a row."""
CURVES: Final = OneOf(("X25519MLKEM768", "X25519", "P-256", "P-384", "P-521"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPProxySettings:
    """``httpproxy``."""

    disable_permit_insecure: bool | None = None
    root_namespaces: tuple[str, ...] = ()
    """Namespaces that may have root HTTPProxies. Empty: all."""
    fallback_certificate: Annotated[NamespacedName | None, Filled()] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSettings:
    """``ingress``."""

    class_names: tuple[Annotated[str, Length(1)], ...] = ()
    """Which HTTPProxies are served.

    Default: those without an ingress class and those of ``authplane``. In a folder, those of ``contour`` too.
    """

    UPSTREAM: ClassVar = Upstream(silent=("statusAddress",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """``envoy.timeouts``; durations as text."""

    request_timeout: str = ""
    connection_idle_timeout: str = ""
    stream_idle_timeout: str = ""
    max_connection_duration: str = ""
    delayed_close_timeout: str = ""
    connection_shutdown_grace_period: str = ""
    connect_timeout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTlsSettings:
    """``envoy.cluster.upstreamTLS`` and ``envoy.listener.tls``: what TLS may negotiate."""

    minimum_protocol_version: Annotated[str, TLS_VERSION] = ""
    maximum_protocol_version: Annotated[str, TLS_VERSION] = ""
    cipher_suites: tuple[Annotated[str, CIPHERS], ...] = ()
    """For TLS 1.2."""
    ecdh_curves: tuple[Annotated[str, CURVES], ...] = ()

    UPSTREAM: ClassVar = Upstream(ignored=("fingerprint",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """``envoy.cluster``."""

    circuit_breakers: CircuitBreakers | None = None
    upstream_tls: Annotated[UpstreamTlsSettings | None, Filled(), Named("upstreamTLS")] = None

    UPSTREAM: ClassVar = Upstream(
        ignored=("dnsLookupFamily", "maxRequestsPerConnection", "per-connection-buffer-limit-bytes")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """``envoy.listener``."""

    tls: Annotated[UpstreamTlsSettings | None, Filled()] = None
    """For every host and every listener of a Gateway; a host can be stricter, never laxer."""

    UPSTREAM: ClassVar = Upstream(
        ignored=("compression", "connectionBalancer", "disableAllowChunkedLength", "disableMergeSlashes",
                 "httpMaxConcurrentStreams", "maxConnectionsPerListener", "maxConnectionsToAcceptPerSocketEvent",
                 "maxRequestsPerConnection", "maxRequestsPerIOCycle", "per-connection-buffer-limit-bytes",
                 "serverHeaderTransformation", "socketOptions", "useProxyProtocol"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """``envoy.network``."""

    num_trusted_hops: Annotated[int | None, HOPS] = None
    """Number of trusted proxies in front of Envoy, which set the addresses of clients."""

    UPSTREAM: ClassVar = Upstream(ignored=("adminPort", "stripTrailingHostDot"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """``envoy``."""

    client_certificate: Annotated[NamespacedName | None, Filled()] = None
    timeouts: TimeoutSettings = TimeoutSettings()
    cluster: ClusterSettings = ClusterSettings()
    listener: ListenerSettings = ListenerSettings()
    network: NetworkSettings = NetworkSettings()

    UPSTREAM: ClassVar = Upstream(
        ignored=("defaultHTTPVersions", "health", "http", "https", "logging", "metrics",
                 "omEnforcedHealth", "runtimeSettings", "service"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourConfigurationSpec:
    """``spec`` of a ContourConfiguration: the parts that concern authorization."""

    global_ext_auth: Annotated[Authorization | None, Filled()] = None
    httpproxy: HTTPProxySettings = HTTPProxySettings()
    ingress: IngressSettings = IngressSettings()
    envoy: EnvoySettings = EnvoySettings()
    enable_external_name_service: bool | None = None
    """Unset, ExternalName Services work for ExtensionServices, as the design of external authorization says."""

    UPSTREAM: ClassVar = Upstream(
        silent=("debug", "health", "metrics", "xdsServer"),
        ignored=("featureFlags", "gateway", "policy", "rateLimitService", "tracing"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourConfiguration:
    """Settings of the whole installation, in Contour's own kind; at most one."""

    metadata: Meta
    spec: ContourConfigurationSpec = ContourConfigurationSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourPods:
    """``spec.contour`` of a ContourDeployment: how Contour itself would run."""

    UPSTREAM: ClassVar = Upstream(
        silent=("deployment", "kubernetesLogLevel", "logLevel", "nodePlacement", "podAnnotations", "replicas",
                "resources"),
        ignored=("disabledFeatures", "watchNamespaces"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourDeploymentSpec:
    """``spec`` of a ContourDeployment: the settings, and what is only for who runs Contour and its Envoy."""

    contour: ContourPods = ContourPods()
    runtime_settings: ContourConfigurationSpec = ContourConfigurationSpec()

    UPSTREAM: ClassVar = Upstream(silent=("envoy", "resourceLabels"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourDeployment:
    """An installation of Contour with its settings; at most one."""

    metadata: Meta
    spec: ContourDeploymentSpec = ContourDeploymentSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContourSettings:
    """``AuthplaneConfiguration.spec.contour``: the fields of a ContourConfiguration, and ours."""

    global_ext_auth: Annotated[Authorization | None, Filled()] = None
    httpproxy: HTTPProxySettings = HTTPProxySettings()
    ingress: IngressSettings = IngressSettings()
    envoy: EnvoySettings = EnvoySettings()
    enable_external_name_service: bool | None = None
    allow_local_external_names: bool = False
    """Allows ExternalName Services that point to loopback, link-local or cluster addresses."""
    cluster_domain: Annotated[str, DNS_NAME] = "cluster.local"
    """The domain of the cluster's own names."""
    allow_insecure_authorization: bool = False
    """Allows authorization on virtual hosts without TLS and on those with the fallback certificate."""
    require_extension_grants: bool = False
    """An HTTPProxy may name an ExtensionService of another namespace only with a ReferenceGrant there."""
    allow_fail_open: bool = True
    """Whether owners of HTTPProxies may set ``failOpen``."""
    disabling: Annotated[str, OneOf(("Anyone", "RootNamespace", "Nobody"))] = "Anyone"
    """Which HTTPProxies may disable authorization: all, those in the namespace of their root, or none."""
    max_response_timeout: str = ""
    """Maximum ``responseTimeout`` of an HTTPProxy. Empty: no limit."""
