"""Kubernetes' own kinds: Service, Secret, ConfigMap, EndpointSlice."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Annotated, ClassVar, Final

from authplane.core.secret import Secret as Hidden
from authplane.core.values import dataclass
from authplane.resources.kinds.meta import NOTHING, Meta
from authplane.resources.typed.schema import Base64, Length, Named, OneOf, Range, Upstream

SERVICE_LABEL: Final = "kubernetes.io/service-name"
"""The label that names the Service of an EndpointSlice."""
AUTH_TYPE: Final = "projectcontour.io/auth-type"
"""The annotation of Secrets with users; its value is ``basic``."""
PROTOCOLS: Final = OneOf(("TCP", "UDP", "SCTP"))
_NO_DATA: Final[Mapping[str, Hidden[bytes]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePort:
    """One port of a Service. ``name`` ties it to the ports of the EndpointSlices."""

    name: str = ""
    port: Annotated[int, Range(1, 65535)]
    protocol: Annotated[str, PROTOCOLS] = "TCP"

    UPSTREAM: ClassVar = Upstream(silent=("appProtocol", "nodePort", "targetPort"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """``spec`` of a Service."""

    type: Annotated[str, OneOf(("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"))] = "ClusterIP"
    external_name: str = ""
    ports: tuple[ServicePort, ...] = ()

    UPSTREAM: ClassVar = Upstream(
        silent=(
            "allocateLoadBalancerNodePorts", "clusterIP", "clusterIPs", "externalIPs", "externalTrafficPolicy",
            "healthCheckNodePort", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "loadBalancerClass",
            "loadBalancerIP", "loadBalancerSourceRanges", "publishNotReadyAddresses", "selector", "sessionAffinity",
            "sessionAffinityConfig", "trafficDistribution",
        )
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A named set of ports; its endpoints are in EndpointSlices."""

    metadata: Meta
    spec: ServiceSpec = ServiceSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Bytes under keys. ``data`` is base64 in the document; ``string_data`` is text there, and wins."""

    metadata: Meta
    type: str = "Opaque"
    data: Annotated[Mapping[str, Hidden[bytes]], Base64()] = field(default_factory=lambda: _NO_DATA)
    string_data: Mapping[str, Hidden[bytes]] = field(default_factory=lambda: _NO_DATA)

    UPSTREAM: ClassVar = Upstream(silent=("immutable",))

    def value(self, key: str) -> Hidden[bytes] | None:
        """Return the bytes under ``key``."""
        return self.string_data[key] if key in self.string_data else self.data.get(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """Texts under keys."""

    metadata: Meta
    data: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    UPSTREAM: ClassVar = Upstream(silent=("binaryData", "immutable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConditions:
    """What is known of an endpoint; unknown readiness counts as ready, as Kubernetes says."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One backend; its addresses are interchangeable."""

    addresses: Annotated[tuple[str, ...], Length(1, 100)]
    conditions: EndpointConditions = EndpointConditions()

    UPSTREAM: ClassVar = Upstream(silent=("deprecatedTopology", "hints", "hostname", "nodeName", "targetRef", "zone"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPort:
    """A port that all endpoints of the slice have."""

    name: str = ""
    port: Annotated[int, Range(1, 65535)]
    protocol: Annotated[str, PROTOCOLS] = "TCP"

    UPSTREAM: ClassVar = Upstream(silent=("appProtocol",))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSlice:
    """Endpoints of the Service that the label ``kubernetes.io/service-name`` names."""

    metadata: Meta
    address_type: Annotated[str, OneOf(("IPv4", "IPv6", "FQDN")), Named("addressType")]
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()

    @property
    def service(self) -> str:
        """The name of the Service in the slice's own namespace; empty if it serves none."""
        return self.metadata.labels.get(SERVICE_LABEL, "")
