"""Where the gateway listens."""

from ipaddress import ip_address
from typing import Final

from authplane.base.names import Ref
from authplane.base.problems import Problems
from authplane.graph.reports import Reports
from authplane.resources.documents import Resources
from authplane.resources.kinds.authplane import AuthplaneConfiguration, Listeners

_DEFAULTS: Final = Listeners()


def usable_listeners(resources: Resources, reports: Reports) -> Listeners | None:
    """Return the listeners; None means that the configuration cannot be used, and then nothing is served.

    The defaults are for those who say nothing: they are open to other machines, which an author whose configuration
    has a mistake may have wanted to prevent.
    """
    configuration = resources.configuration
    if configuration is None:
        broken = any(ref.kind == AuthplaneConfiguration.__name__ for ref in resources.broken)
        return None if broken else _DEFAULTS
    meta, listeners = configuration.metadata, configuration.spec.listeners
    problems = reports.of(Ref(AuthplaneConfiguration.__name__, meta.namespace, meta.name))
    with problems.at("spec", "listeners"):
        for field, address in (("http", listeners.http.address), ("https", listeners.https.address)):
            with problems.at(field, "address"):
                _require_ip_address(address, problems)
        if listeners.http.port == listeners.https.port:
            problems.add("FieldConflict", f"http and https cannot both listen on port {listeners.http.port}")
    return None if problems.errors else listeners


def _require_ip_address(text: str, problems: Problems) -> None:
    try:
        ip_address(text)
    except ValueError:
        problems.add("FieldInvalid", f"{text!r} is not an IP address such as 127.0.0.1")
