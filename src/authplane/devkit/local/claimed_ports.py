"""The ports that a gateway on this machine needs, and the settings that change them."""

from collections import Counter
from collections.abc import Iterator, Mapping

from authplane.controlplane.graph.model.port_model import PlainPort, Port
from authplane.controlplane.serving.generation import Generation
from authplane.devkit.local.needed_parts import Part, needed_parts
from authplane.runtime.servers.listen import AddressTakenError, ListenError, TcpAddress, claim


class PortNeededError(ListenError):
    """A port is not free. The message names the process that has it, the setting, and what to do."""


def gateway_addresses(generation: Generation) -> tuple[TcpAddress, ...]:
    """Return the addresses on which Envoy listens."""
    return tuple(map(_tcp, generation.built.graph.ports))


def claim_parts(offered: Mapping[Part, TcpAddress], generation: Generation, *, strict: bool) -> dict[Part, str]:
    """Check that every port is free; return the parts that the folder needs.

    The value is empty for a part that is to be started. If its port is taken, the value says who has it: that program
    is used in its place. With ``strict``, and for the gateway's own ports, a taken port raises `PortNeededError`.
    """
    needed = [part for part in Part if part in needed_parts(offered, generation)]
    _require_distinct(generation, {part: offered[part] for part in needed})
    for port in generation.built.graph.ports:
        try:
            claim(_tcp(port))
        except AddressTakenError as error:
            start = "Stop that program, or set" if error.busy else "Set"
            raise PortNeededError(f"{error.fact}. {start} {_setting(port, generation)} to another port.") from error
    found = {}
    for part in needed:
        try:
            claim(offered[part])
            found[part] = ""
        except AddressTakenError as error:
            if strict or not error.busy:
                start = "Stop that program, or set" if error.busy else "Set"
                raise PortNeededError(
                    f"{error.fact}. {start} {part.option} to another port, and use the same port in the resources."
                ) from error
            found[part] = error.why
    return found


def _require_distinct(generation: Generation, parts: Mapping[Part, TcpAddress]) -> None:
    uses = [(port.where.port, _setting(port, generation)) for port in generation.built.graph.ports]
    uses += [(address.port, part.option) for part, address in parts.items()]
    twice = next((port for port, times in Counter(port for port, _ in uses).items() if times > 1), None)
    if twice is not None:
        settings = " and ".join(setting for port, setting in uses if port == twice)
        raise PortNeededError(f"Several settings use port {twice}: {settings}. Use another port in one of them.")


def _setting(port: Port, generation: Generation) -> str:
    """Name the field that sets a port of the gateway."""
    if port in generation.built.graph.proxies:
        field = "http" if isinstance(port, PlainPort) else "https"
        return f"spec.listeners.{field}.port of the AuthplaneConfiguration"
    return " and ".join(_listeners(port, generation)) or "spec.gateway.port of the AuthplaneConfiguration"


def _listeners(port: Port, generation: Generation) -> Iterator[str]:
    for name, gateway in generation.loaded.resources.gateways.items():
        for index, listener in enumerate(gateway.spec.listeners):
            if listener.port == port.where.port:
                yield f"spec.listeners[{index}].port of Gateway {name}"


def _tcp(port: Port) -> TcpAddress:
    return TcpAddress(host=port.where.address, port=port.where.port)
