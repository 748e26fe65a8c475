"""Listeners of Gateways: which of them are served, and the problems of the others.

A problem of one listener disables only that listener. It keeps its host name even then: no wider listener of the port
serves that name, since the wider one may require less of its clients.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Final

from authplane.controlplane.graph.model.hostnames import ANY, hostname_problem
from authplane.controlplane.graph.model.port_model import Certificate, ClientCertificates
from authplane.controlplane.graph.model.reference_grants import may_refer
from authplane.controlplane.graph.tls.tls_secrets import (
    Unusable,
    ca_bundle,
    ca_bundle_in_config_map,
    remedy,
    server_certificate,
)
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.gateway import (
    AllowedRoutes,
    FrontendTls,
    FrontendValidation,
    Gateway,
    GatewayListener,
    GatewayTls,
    SecretRef,
)

_PROTOCOLS: Final = frozenset({"HTTP", "HTTPS"})
_ROUTE_KIND: Final = ("gateway.networking.k8s.io", "HTTPRoute")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a condition of the Gateway API is not as it should be."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listener of a Gateway as its author wrote it, and what is wrong with it."""

    gateway: ObjectName
    section: str
    index: int
    port: int
    hostname: str
    secure: bool
    certificates: tuple[Certificate, ...] = ()
    clients: ClientCertificates | None = None
    namespaces: str = "Same"
    takes_routes: bool = True
    """Whether HTTPRoutes may attach."""
    not_accepted: Fault | None = None
    unresolved: Fault | None = None
    conflicted: Fault | None = None

    @property
    def name(self) -> str:
        """The name under which proxies and logs know it."""
        return f"{self.gateway}/{self.section}"

    @property
    def served(self) -> bool:
        """Whether proxies get it; unsupported kinds of routes disable only those routes."""
        refs = self.unresolved is None or self.unresolved.reason == "InvalidRouteKinds"
        return self.not_accepted is None and self.conflicted is None and refs

    def admits(self, namespace: str) -> bool:
        """Tell whether routes of a namespace may attach."""
        same = self.namespaces == "Same" and namespace == self.gateway.namespace
        return self.takes_routes and (self.namespaces == "All" or same)


def read_listeners(
    gateways: Mapping[ObjectName, Gateway],
    resources: Resources,
    taken: Collection[int],
    report: Callable[[ObjectName], Problems],
    *,
    trusted: bool = False,
) -> tuple[Listener, ...]:
    """Read every listener, in the order of Gateways and within them; the first to claim a name or port gets it.

    ``taken`` are the ports of other resources. ``trusted`` Gateways need no ReferenceGrants.
    """
    found = []
    for name, gateway in gateways.items():
        problems = report(name)
        seen: set[str] = set()
        frontends = _frontends(gateway.spec.tls, partial(_Read, name, resources, problems, trusted=trusted))
        for index, written in enumerate(gateway.spec.listeners):
            frontend = frontends.get(written.port, frontends.get(_OTHER_PORTS, _Frontend()))
            with problems.at("spec", "listeners", index):
                read = _Read(name, resources, problems, trusted=trusted).listener(written, index, frontend)
                found.append(_checked(read, seen, taken, problems))
            seen.add(written.name)
    return _without_conflicts(found, report)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frontend:
    """What ``spec.tls.frontend`` of a Gateway demands of the clients of a port."""

    clients: ClientCertificates | None = None
    fault: Fault | None = None


_OTHER_PORTS: Final = 0


def _frontends(written: GatewayTls | None, reader: Callable[[], "_Read"]) -> Mapping[int, _Frontend]:
    """Read ``spec.tls.frontend``, by port; a port that is named twice has no listener."""
    frontend = None if written is None else written.frontend
    if frontend is None:
        return {}
    with reader().at("spec", "tls", "frontend", "default", "validation"):
        found = {_OTHER_PORTS: reader().frontend(frontend.default)}
    for index, each in enumerate(frontend.per_port):
        read = reader()
        with read.at("spec", "tls", "frontend", "perPort", index):
            if each.port in found:
                message = f"Another entry has port {each.port}. Remove one of the entries."
                found[each.port] = _Frontend(fault=read.fault("Invalid", message))
                continue
            with read.at("tls", "validation"):
                found[each.port] = read.frontend(each.tls)
    return found


def _checked(listener: Listener, names: Collection[str], taken: Collection[int], problems: Problems) -> Listener:
    if listener.not_accepted is not None:
        return listener
    if listener.section in names:
        with problems.at("name"):
            return replace(
                listener,
                not_accepted=_fault(
                    "Invalid",
                    f"Another listener has the name {listener.section!r}. Rename one of the listeners.",
                    problems,
                ),
            )
    if listener.port in taken:
        message = f"Envoy already serves HTTPProxies on port {listener.port}. Use another port."
        with problems.at("port"):
            return replace(listener, not_accepted=_fault("PortUnavailable", message, problems))
    return listener


def _without_conflicts(found: Iterable[Listener], report: Callable[[ObjectName], Problems]) -> tuple[Listener, ...]:
    protocols: dict[int, Listener] = {}
    names: dict[tuple[int, str], Listener] = {}
    settled = []
    for each in found:
        if each.not_accepted is None:
            first = protocols.setdefault(each.port, each)
            owner = names.setdefault((each.port, each.hostname), each) if first.secure == each.secure else first
            if owner is not each:
                problems = report(each.gateway)
                with problems.at("spec", "listeners", each.index):
                    settled.append(replace(each, conflicted=_conflict(each, owner, problems)))
                continue
        settled.append(each)
    return tuple(settled)


def _conflict(listener: Listener, owner: Listener, problems: Problems) -> Fault:
    whose = f"Listener {owner.section!r} of Gateway {owner.gateway}"
    if listener.secure != owner.secure:
        return _fault(
            "ProtocolConflict", f"{whose} uses another protocol on port {listener.port}. Use another port.", problems
        )
    host = "every host" if listener.hostname == ANY else repr(listener.hostname)
    return _fault(
        "HostnameConflict",
        f"{whose} already serves {host} on port {listener.port}. Use another host name or port.",
        problems,
    )


def _fault(reason: str, message: str, problems: Problems) -> Fault:
    problems.add(reason, message)
    return Fault(reason, message)


class _Read:
    """Reads the listeners of one Gateway."""

    def __init__(self, gateway: ObjectName, resources: Resources, problems: Problems, *, trusted: bool) -> None:
        self._gateway = gateway
        self._resources = resources
        self._problems = problems
        self._trusted = trusted
        self._unresolved: list[Fault] = []

    def at(self, *steps: str | int) -> AbstractContextManager[None]:
        """Go on to a field, for the paths of problems."""
        return self._problems.at(*steps)

    def fault(self, reason: str, message: str) -> Fault:
        """Report a problem."""
        return _fault(reason, message, self._problems)

    def frontend(self, written: FrontendTls) -> _Frontend:
        """Read which client certificates the HTTPS listeners of some ports accept."""
        if written.validation is None:
            return _Frontend()
        clients = self._clients(written.validation)
        return _Frontend(clients=clients, fault=self._unresolved[0] if self._unresolved else None)

    def listener(self, written: GatewayListener, index: int, frontend: _Frontend) -> Listener:
        """Read a listener by itself; its own ``frontendValidation`` replaces that of the Gateway."""
        secure = written.protocol == "HTTPS"
        not_accepted = self._not_accepted(written)
        certificates: tuple[Certificate, ...] = ()
        clients = None
        if secure and not_accepted is None:
            with self._problems.at("tls"):
                certificates, clients = self._tls(written)
            if written.tls is None or written.tls.frontend_validation is None:
                clients = frontend.clients
                self._unresolved += [frontend.fault] if frontend.fault is not None else []
        kinds = self._kinds(written.allowed_routes)
        return Listener(
            gateway=self._gateway,
            section=written.name,
            index=index,
            port=written.port,
            hostname=(written.hostname or ANY).lower(),
            secure=secure,
            certificates=certificates,
            clients=clients,
            namespaces=written.allowed_routes.namespaces.from_,
            takes_routes=kinds,
            not_accepted=not_accepted,
            unresolved=self._unresolved[0] if self._unresolved else None,
        )

    def _not_accepted(self, written: GatewayListener) -> Fault | None:
        problems = self._problems
        if written.protocol not in _PROTOCOLS:
            with problems.at("protocol"):
                return _fault(
                    "UnsupportedProtocol",
                    f"Protocol {written.protocol!r} is not supported. Supported: HTTP, HTTPS.",
                    problems,
                )
        wrong = hostname_problem(written.hostname.lower()) if written.hostname else ""
        if wrong:
            with problems.at("hostname"):
                return _fault("Invalid", f"{written.hostname!r} {wrong}", problems)
        if written.protocol == "HTTP" and written.tls is not None:
            with problems.at("tls"):
                return _fault(
                    "Invalid", "An HTTP listener does not use TLS. Remove tls, or set protocol to HTTPS.", problems
                )
        if written.tls is not None and written.tls.mode != "Terminate":
            with problems.at("tls", "mode"):
                return _fault("Invalid", "An HTTPS listener must terminate TLS. Set mode to Terminate.", problems)
        return None

    def _tls(self, written: GatewayListener) -> tuple[tuple[Certificate, ...], ClientCertificates | None]:
        tls = written.tls
        if tls is None or not tls.certificate_refs:
            self._add("InvalidCertificateRef", "The listener has no certificate. Set tls.certificateRefs.")
            return (), None
        if tls.options:
            with self._problems.at("options"):
                self._problems.warn("IgnoredField", "TLS options are not supported and have no effect. Remove them.")
        certificates = []
        for index, ref in enumerate(tls.certificate_refs):
            with self._problems.at("certificateRefs", index):
                found = self._certificate(ref)
                if found is not None:
                    certificates.append(found)
        clients = None
        if tls.frontend_validation is not None:
            with self._problems.at("frontendValidation"):
                clients = self._clients(tls.frontend_validation)
        return tuple(certificates), clients

    def _clients(self, written: FrontendValidation) -> ClientCertificates:
        optional = written.mode == "AllowInsecureFallback"
        if optional:
            with self._problems.at("mode"):
                self._problems.warn(
                    "ClientNotVerified",
                    "Clients may connect without a certificate. Envoy still rejects a certificate that it cannot "
                    "verify. Ignore this if intended.",
                )
        bundles = []
        for index, ref in enumerate(written.ca_certificate_refs):
            with self._problems.at("caCertificateRefs", index):
                bundles.append(self._bundle(ref))
        return ClientCertificates(ca=b"".join(bundles), required=not optional)

    def _secret(self, ref: SecretRef, wrong_kind: str) -> ObjectName | None:
        """Return the Secret that is named, if the Gateway may name it."""
        if (ref.group, ref.kind) != ("", "Secret"):
            self._add(wrong_kind, f"{ref.kind!r} of group {ref.group!r} is not a Secret. Refer to a Secret.")
            return None
        name = ObjectName(ref.namespace or self._gateway.namespace, ref.name)
        return name if self._permitted(Ref("Secret", name.namespace, name.name)) else None

    def _certificate(self, ref: SecretRef) -> Certificate | None:
        name = self._secret(ref, "InvalidCertificateRef")
        if name is None:
            return None
        found = server_certificate(self._resources, name)
        if isinstance(found, Unusable):
            self._add("InvalidCertificateRef", f'Secret "{name}" is invalid: {found}. {remedy(found)}')
            return None
        return found

    def _bundle(self, ref: SecretRef) -> bytes:
        if (ref.group, ref.kind) == ("", "ConfigMap"):
            return self._bundle_in_config_map(ref)
        name = self._secret(ref, "InvalidCACertificateKind")
        if name is None:
            return b""
        found = ca_bundle(self._resources, name)
        if isinstance(found, Unusable):
            self._add("InvalidCACertificateRef", f'Secret "{name}" is invalid: {found}. {remedy(found)}')
            return b""
        return found

    def _bundle_in_config_map(self, ref: SecretRef) -> bytes:
        name = ObjectName(ref.namespace or self._gateway.namespace, ref.name)
        if not self._permitted(Ref("ConfigMap", name.namespace, name.name)):
            return b""
        found = ca_bundle_in_config_map(self._resources, name)
        if isinstance(found, Unusable):
            self._add("InvalidCACertificateRef", f'ConfigMap "{name}" is invalid: {found}. Correct the ConfigMap.')
            return b""
        return found

    def _permitted(self, target: Ref) -> bool:
        """Tell whether the Gateway may refer to an object, and report it if not."""
        if self._trusted or may_refer(self._resources, gateway_ref(self._gateway), target):
            return True
        self._add(
            "RefNotPermitted",
            f'No ReferenceGrant lets Gateway "{self._gateway}" refer to {target.kind} "{target.object_name}". '
            f'Add a ReferenceGrant in namespace "{target.namespace}".',
        )
        return False

    def _kinds(self, allowed: AllowedRoutes) -> bool:
        """Tell whether HTTPRoutes may attach."""
        others = [each for each in allowed.kinds if (each.group, each.kind) != _ROUTE_KIND]
        if others:
            with self._problems.at("allowedRoutes", "kinds"):
                self._add(
                    "InvalidRouteKinds",
                    f"Routes of kind {others[0].kind!r} cannot attach to a listener. Use HTTPRoute.",
                )
        return len(others) < len(allowed.kinds) or not allowed.kinds

    def _add(self, reason: str, message: str) -> None:
        self._unresolved.append(_fault(reason, message, self._problems))


def gateway_ref(name: ObjectName) -> Ref:
    """Name a Gateway."""
    return Ref("Gateway", name.namespace, name.name)
