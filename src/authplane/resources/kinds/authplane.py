"""Our own kind: AuthplaneConfiguration."""

from dataclasses import dataclass
from typing import Annotated

from authplane.resources.kinds.meta import Meta
from authplane.resources.schema import Length, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where Envoy listens."""

    address: Annotated[str, Length(1)] = "0.0.0.0"  # noqa: S104 (a gateway is there to be reached)
    port: Annotated[int, Range(1, 65535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The two listeners of the gateway."""

    http: ListenAddress = ListenAddress(port=8080)
    https: ListenAddress = ListenAddress(port=8443)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthplaneConfigurationSpec:
    """``spec`` of an AuthplaneConfiguration."""

    listeners: Listeners = Listeners()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthplaneConfiguration:
    """Settings of the whole installation; at most one."""

    metadata: Meta
    spec: AuthplaneConfigurationSpec = AuthplaneConfigurationSpec()
