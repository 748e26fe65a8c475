"""Where the gateway listens."""

from typing import Final

from authplane.resources.documents import Resources
from authplane.resources.kinds.authplane import AuthplaneConfiguration, Listeners

_DEFAULTS: Final = Listeners()


def usable_listeners(resources: Resources) -> Listeners | None:
    """Return the listeners; None means that the configuration cannot be used, and then nothing is served.

    The defaults are for those who say nothing: they are open to other machines, which an author whose configuration
    has a mistake may have wanted to prevent.
    """
    if resources.configuration is not None:
        return resources.configuration.spec.listeners
    broken = any(ref.kind == AuthplaneConfiguration.__name__ for ref in resources.broken)
    return None if broken else _DEFAULTS
