"""Kinds that only a cluster has: a folder needs no GatewayClass."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final

from authplane.core.values import dataclass
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import Length, Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayClassSpec:
    """``spec`` of a GatewayClass."""

    controller_name: Annotated[str, Length(1, 253)]
    """Controller of the Gateways of this class; ``authplane.dev/controller`` for authplane."""
    description: Annotated[str, Length(0, 64)] = ""

    UPSTREAM: ClassVar = Upstream(ignored=("parametersRef",))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayClass:
    """A class of Gateways, and the controller that serves them."""

    metadata: Meta
    spec: GatewayClassSpec


CLUSTER_KINDS: Final[Mapping[tuple[str, str], type]] = MappingProxyType(
    {
        ("gateway.networking.k8s.io/v1", "GatewayClass"): GatewayClass,
        ("gateway.networking.k8s.io/v1beta1", "GatewayClass"): GatewayClass,
    }
)
