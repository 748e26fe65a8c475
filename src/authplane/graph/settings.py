"""What holds for the whole gateway: from an AuthplaneConfiguration and a ContourConfiguration."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from authplane.base.names import ObjectName
from authplane.base.timeouts import Timeout, UseDefault
from authplane.graph.model import NO_TIMEOUTS, ConnectionTimeouts
from authplane.graph.upstreams import NO_BREAKERS, Breakers
from authplane.resources.documents import Resources
from authplane.resources.kinds.authplane import AuthplaneConfiguration, Listeners
from authplane.resources.kinds.contour_policies import Authorization


class Disabling(StrEnum):
    """Which HTTPProxies may disable authorization."""

    ANYONE = "Anyone"
    ROOT_NAMESPACE = "RootNamespace"
    NOBODY = "Nobody"


class ExternalNames(StrEnum):
    """Where ExternalName Services may lead."""

    NOWHERE = "nowhere"
    ELSEWHERE = "elsewhere"
    """Not to this machine or its link."""
    ANYWHERE = "anywhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is set once."""

    listeners: Listeners = Listeners()
    timeouts: ConnectionTimeouts = NO_TIMEOUTS
    connect_timeout: Timeout = UseDefault()
    breakers: Breakers = NO_BREAKERS
    global_authorization: Authorization | None = None
    client_certificate: ObjectName | None = None
    fallback_certificate: ObjectName | None = None
    root_namespaces: frozenset[str] = frozenset()
    """Empty is all."""
    permit_insecure: bool = True
    external_names: ExternalNames = ExternalNames.ELSEWHERE
    insecure_authorization: bool = False
    extension_grants: bool = False
    """An ExtensionService of another namespace needs a grant."""
    may_fail_open: bool = True
    disabling: Disabling = Disabling.ANYONE
    longest_check: Timeout = UseDefault()
    """The longest response timeout that an HTTPProxy may ask for; the default is any."""


DEFAULTS: Final = Settings()


def read_settings(resources: Resources) -> Settings | None:
    """Return what is set; None means that the configuration cannot be used, and then nothing is served.

    The defaults are for those who say nothing: they are open to other machines, which an author whose configuration
    has a mistake may have wanted to prevent.
    """
    if resources.configuration is not None:
        return Settings(listeners=resources.configuration.spec.listeners)
    broken = any(ref.kind == AuthplaneConfiguration.__name__ for ref in resources.broken)
    return None if broken else DEFAULTS
