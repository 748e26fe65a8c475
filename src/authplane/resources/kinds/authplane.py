"""Our own kind: AuthplaneConfiguration."""

from dataclasses import dataclass
from typing import Annotated

from authplane.resources.kinds.contour_settings import ContourSettings
from authplane.resources.kinds.meta import Meta
from authplane.resources.kinds.policy_settings import PolicySettings
from authplane.resources.schema import Length, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where Envoy listens."""

    address: Annotated[str, Length(1)] = "0.0.0.0"  # noqa: S104 (a gateway is there to be reached)
    port: Annotated[int, Range(1, 65535)] = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsListener:
    """Where Envoy listens for TLS, and under which port clients know it."""

    address: Annotated[str, Length(1)] = "0.0.0.0"  # noqa: S104 (as above)
    port: Annotated[int, Range(1, 65535)] = 8443
    public_port: Annotated[int, Range(1, 65535)] = 443
    """Where redirects from HTTP send clients: the port of the load balancer in front, or ``port`` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The two listeners of the gateway."""

    http: ListenAddress = ListenAddress()
    https: HttpsListener = HttpsListener()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthplaneConfigurationSpec(PolicySettings):
    """``spec`` of an AuthplaneConfiguration."""

    listeners: Listeners = Listeners()
    contour: ContourSettings = ContourSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthplaneConfiguration:
    """Settings of the whole installation; at most one."""

    metadata: Meta
    spec: AuthplaneConfigurationSpec = AuthplaneConfigurationSpec()
