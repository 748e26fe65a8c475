"""Reads Contour's annotations of the Services of routes."""

from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.model.upstreams import Breakers
from authplane.core.problems import Problems
from authplane.resources.kinds.core import Service

_PROTOCOL: Final = "projectcontour.io/upstream-protocol."
_PROTOCOLS: Final = ("h2", "h2c", "tls")
_BREAKERS: Final = {
    "projectcontour.io/max-connections": "connections",
    "projectcontour.io/max-pending-requests": "pending_requests",
    "projectcontour.io/max-requests": "requests",
    "projectcontour.io/max-retries": "retries",
    "projectcontour.io/per-host-max-connections": "connections_per_host",
}
_MOST: Final = 2**32 - 1


def annotated_protocol(service: Service, port: int) -> str:
    """Return the protocol of a port; annotations list ports by number or name. Empty is HTTP/1.1."""
    known = {str(port), *(each.name for each in service.spec.ports if each.port == port and each.name)}
    for protocol in _PROTOCOLS:
        listed = service.metadata.annotations.get(_PROTOCOL + protocol, "")
        if known & {each.strip() for each in listed.split(",")}:
            return protocol
    return ""


def annotated_breakers(service: Service, default: Breakers, problems: Problems) -> Breakers:
    """Return the limits of a Service: its own where it has some, those of the gateway elsewhere."""
    own: dict[str, int] = {}
    for annotation, field in _BREAKERS.items():
        text = service.metadata.annotations.get(annotation, "")
        if text.isdecimal() and int(text) <= _MOST:
            if int(text):
                own[field] = int(text)
        elif text:
            name = service.metadata.object_name
            problems.warn(
                "IgnoredField",
                f'ignoring annotation "{annotation}" of Service "{name}"; it is not a number. Correct it.',
            )
    return replace(default, **own) if own else default
