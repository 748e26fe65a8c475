"""Resolves the Services that policies refer to, and checks their ReferenceGrants."""

import re
from dataclasses import replace
from typing import Final

from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.policy.check.answer_headers import fit_name
from authplane.policy.rules.backend_tls import BackendTlsPolicies, TlsRefused
from authplane.policy.rules.external_service import Destination, ExternalService, Missing, OverGrpc, OverHttp
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import ExternalAuth

GROUP: Final = "agentic.networking.x-k8s.io"
"""The group of policies, in ReferenceGrants."""

_PATH: Final = re.compile(r"(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+")
_STEPS: Final = re.compile(r"//|/\.{1,2}(?:/|\Z)|%(?:2[ef]|5c|25|00)|;", re.IGNORECASE)
"""Parts of paths that servers merge, resolve, decode twice or drop."""


def parse_external(written: ExternalAuth, namespace: str, problems: Problems) -> ExternalService | None:
    """Read how to call an external service; None after a problem. `resolve` checks whether it exists."""
    before = problems.error_count
    reference = written.backend_ref
    with problems.at("externalAuth"):
        with problems.at("backendRef"):
            if (reference.group, reference.kind) != ("", "Service"):
                said = (
                    f"A {reference.kind!r} of group {reference.group!r} cannot be an external service. Use a Service."
                )
                problems.add("Invalid", said)
            elif reference.port is None:
                problems.add("Invalid", "The reference has no 'port'. Add the port of the Service.")
        protocol = _grpc(written, problems) if written.protocol == "GRPC" else _http(written, problems)
    if problems.error_count > before:
        return None
    return ExternalService(
        service=ObjectName(reference.namespace or namespace, reference.name),
        port=reference.port or 0,
        protocol=protocol,
        most_body=0 if written.forward_body is None else written.forward_body.max_size,
    )


def resolve(
    resources: Resources, tls: BackendTlsPolicies, origin: Ref, asked: ExternalService, problems: Problems
) -> Destination:
    """Return the service if it is there and may be referred to; else why not, which is among the problems too."""
    missing = _missing(resources, origin, asked)
    if missing is None:
        over = tls.find(resources.services[asked.service], asked.port)
        if not isinstance(over, TlsRefused):
            return replace(asked, tls=over)
        missing = Missing(
            "BackendNotFound", f'authplane cannot call Service "{asked.service}" over TLS: {over.message}'
        )
    with problems.at("externalAuth", "backendRef"):
        problems.add(missing.reason, missing.message)
    return missing


def _missing(resources: Resources, origin: Ref, asked: ExternalService) -> Missing | None:
    name = asked.service
    if not may_refer(resources, origin, name):
        message = (
            f'No ReferenceGrant allows {origin.kind} "{origin.object_name}" to refer to Service "{name}". '
            f"Add one in namespace {name.namespace!r}."
        )
        return Missing("RefNotPermitted", message)
    service = resources.services.get(name)
    if service is None:
        broken = Ref("Service", name.namespace, name.name) in resources.broken
        wrong = "cannot be read. Correct the document." if broken else "not found. Create it, or correct the reference."
        return Missing("BackendNotFound", f'Service "{name}" {wrong}')
    if service.spec.type == "ExternalName":
        said = (
            f'Service "{name}" has type "ExternalName", which an external service cannot have. Use a Service with '
            "endpoints."
        )
        return Missing("BackendNotFound", said)
    if not any(port.port == asked.port and port.protocol == "TCP" for port in service.spec.ports):
        return Missing("BackendNotFound", f'Service "{name}" has no TCP port {asked.port}. Use one of its ports.')
    return None


def may_refer(resources: Resources, origin: Ref, service: ObjectName) -> bool:
    """Tell whether a policy may refer to a Service: in its own namespace, or by a ReferenceGrant of the Service's."""
    return origin.namespace == service.namespace or any(
        name.namespace == service.namespace
        and any(
            (each.group, each.kind, each.namespace) == (GROUP, origin.kind, origin.namespace)
            for each in grant.spec.origins
        )
        and any(
            (each.group, each.kind) == ("", "Service") and each.name in {"", service.name}
            for each in grant.spec.targets
        )
        for name, grant in resources.grants.items()
    )


def _grpc(written: ExternalAuth, problems: Problems) -> OverGrpc:
    if written.http is not None:
        with problems.at("http"):
            problems.add("Invalid", "'http' applies only to protocol HTTP. Remove it, or set protocol: HTTP.")
    names = () if written.grpc is None else written.grpc.allowed_headers
    return OverGrpc(request_headers=_header_names(names, ("grpc", "allowedHeaders"), problems))


def _http(written: ExternalAuth, problems: Problems) -> OverHttp:
    if written.grpc is not None:
        with problems.at("grpc"):
            problems.add("Invalid", "'grpc' applies only to protocol GRPC. Remove it, or set protocol: GRPC.")
    given = written.http
    if given is None:
        return OverHttp()
    path = given.path
    if path and (fault := _path_fault(path)):
        with problems.at("http", "path"):
            problems.add("Invalid", f"{fault} Use a path such as '/verify'.")
    trimmed = path.strip("/")
    return OverHttp(
        path=f"/{trimmed}" if trimmed else "",
        request_headers=_header_names(given.allowed_headers, ("http", "allowedHeaders"), problems),
        response_headers=_header_names(given.allowed_response_headers, ("http", "allowedResponseHeaders"), problems),
    )


def _path_fault(path: str) -> str:
    if not _PATH.fullmatch(path):
        return f"The path {path!r} has a character that is not valid in a URL path."
    unclear = _STEPS.search(path)
    return f"Servers interpret {unclear[0]!r} in the path {path!r} in different ways." if unclear else ""


def _header_names(written: tuple[str, ...], path: tuple[str, str], problems: Problems) -> frozenset[str]:
    for index, name in enumerate(written):
        if not fit_name(name):
            with problems.at(*path, index):
                problems.add("Invalid", f"{name!r} is not a header name. Use letters, digits and hyphens.")
    return frozenset(name.lower() for name in written)
