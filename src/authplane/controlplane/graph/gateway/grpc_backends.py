"""Backends of the type GRPC: gRPC servers that xDS configures, and that enforce policies without a proxy."""

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from authplane.controlplane.graph.gateway.mcp_backends import backend_ref
from authplane.controlplane.graph.gateway.protection import Protection
from authplane.controlplane.graph.model.grpc_servers import (
    Authorization,
    Closed,
    GrpcServer,
    Judged,
    Open,
    PolicyCheck,
    ServerTls,
)
from authplane.controlplane.graph.model.upstreams import Plaintext, VerifiedTls
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.upstreams.policy_connection import OverSocket, OverTcp, PolicyServer, Where
from authplane.core.addresses import parse_ip_address
from authplane.core.names import Ref
from authplane.core.problems import Problems
from authplane.policy.attached.attachments import Policies, RequestTarget, uses_certificates
from authplane.policy.placement.grpc_reach import ANYBODY_ANYWHERE, NOBODY_ANYWHERE
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import GrpcBackend


def build_grpc_servers(
    resources: Resources, server: PolicyServer, protection: Protection, policies: Policies | None, reports: Reports
) -> tuple[GrpcServer, ...]:
    """Build every gRPC server, in name order; one that has an error is closed.

    Without ``policies`` nothing is known of those that protect a server but that there are some.
    """
    return tuple(sorted(_servers(resources, server, protection, policies, reports), key=lambda each: each.ref))


def _servers(
    resources: Resources, server: PolicyServer, protection: Protection, policies: Policies | None, reports: Reports
) -> Iterator[GrpcServer]:
    spec = resources.configuration.spec if resources.configuration is not None else None
    denied = spec is None or spec.unprotected_backends == "Deny"
    for backend in resources.backends.values():
        written = backend.spec.grpc
        if written is None:
            continue
        ref = backend_ref(backend)
        problems = reports.of(ref)
        with problems.at("spec", "grpc"):
            protected = protection.backend(ref.object_name) is not None
            check = _check(server, written, problems)
            _doubt(ref, written, policies, problems)
        authorization: Authorization = Open()
        if check is None:
            authorization = Closed()
        elif protected or denied:
            authorization = _judged(ref, policies, check, protected=protected)
        yield GrpcServer(
            ref=ref,
            address=written.address,
            port=written.port,
            tls=_tls(written),
            authorization=authorization,
        )


def close_all(servers: tuple[GrpcServer, ...]) -> tuple[GrpcServer, ...]:
    """Return the servers with all calls denied, while it is unknown which policies apply."""
    return tuple(replace(each, authorization=Closed()) for each in servers)


def _judged(ref: Ref, policies: Policies | None, check: PolicyCheck, *, protected: bool) -> Judged:
    """Return which callers may get access; all of them, if the policy server may have policies that we do not know."""
    if not protected:
        return Judged(reach=NOBODY_ANYWHERE, check=check)
    way = policies.chain(RequestTarget(backend=ref)) if policies is not None and not policies.closed else None
    if policies is None or way is None or not way.guarded:
        return Judged(reach=ANYBODY_ANYWHERE, check=check)
    from authplane.policy.placement.grpc_plan import place_grpc  # noqa: PLC0415 (few have gRPC servers, and it brings CEL: 0.1 s)

    plan = place_grpc(way, policies.settings)
    return Judged(reach=plan.reach, check=check, grants=plan.grants)


def _tls(written: GrpcBackend) -> ServerTls | None:
    if written.tls is None:
        return None
    return ServerTls(certificate=written.tls.certificate_provider, clients=written.tls.client_ca_provider or "")


def _check(server: PolicyServer, written: GrpcBackend, problems: Problems) -> PolicyCheck | None:
    """Return how to call the policy server; None after a problem."""
    # gRPC has no target of several names, and none of several addresses with TLS.
    where = server.addresses[0]
    if len(server.addresses) > 1:
        problems.warn(
            "PolicyServerFirstAddress",
            "gRPC servers connect only to the first of policyServer.addresses. Ignore this if intended.",
        )
    target = _target(where)
    provider = written.policy_server_ca_provider
    with problems.at("policyServerCaProvider"):
        match server.tls:
            case Plaintext():
                if provider is not None:
                    problems.add(
                        "PolicyServerNotValid",
                        "spec.policyServer of the configuration does not use TLS. Remove this field, or set "
                        "policyServer.caFile.",
                    )
                    return None
                return PolicyCheck(target=target, timeout=server.timeout)
            case VerifiedTls(server_name=name):
                if provider is None:
                    problems.add(
                        "PolicyServerNotValid",
                        "spec.policyServer of the AuthplaneConfiguration uses TLS. Set this field to the certificate "
                        "provider that has the CA of the policy server.",
                    )
                    return None
                if not isinstance(where, OverTcp) or name != where.host:
                    problems.add(
                        "PolicyServerNotValid",
                        f"A gRPC server verifies that the certificate of the policy server has the host of the address,"
                        f" not {name!r}. Set spec.policyServer.address of the AuthplaneConfiguration to an address"
                        " whose host is in the certificate.",
                    )
                    return None
                own = _own(server, written, problems)
                return None if own is None else PolicyCheck(target=target, ca=provider, own=own, timeout=server.timeout)
            case _:
                assert_never(server.tls)


def _own(server: PolicyServer, written: GrpcBackend, problems: Problems) -> str | None:
    """Name the provider of what the server shows to the policy server, empty if nothing; None is a problem."""
    own = written.policy_server_certificate_provider
    if own is None and server.client is not None:
        with problems.at("policyServerCertificateProvider"):
            problems.add(
                "PolicyServerNotValid",
                "This field is required, because spec.policyServer of the AuthplaneConfiguration has a client"
                " certificate. Set this field to the certificate provider that has the client certificate of the"
                " gRPC server.",
            )
        return None
    return own or ""


def _target(where: Where) -> str:
    match where:
        case OverTcp(host=host, port=port):
            address = parse_ip_address(host)
            if address is None:
                return f"dns:///{host}:{port}"
            return f"ipv4:{host}:{port}" if address.version == 4 else f"ipv6:[{host}]:{port}"
        case OverSocket(path=path):
            return f"unix:{path}"
        case _:
            assert_never(where)


def _doubt(ref: Ref, written: GrpcBackend, policies: Policies | None, problems: Problems) -> None:
    """Warn if policies need client certificates that the server does not request."""
    attachment = policies.attachments.get(PolicyTarget(ref)) if policies is not None else None
    asked = written.tls is not None and written.tls.client_ca_provider is not None
    if attachment is not None and uses_certificates(attachment) and not asked:
        with problems.at("tls"):
            problems.warn(
                "SourceNeverMatches",
                "A policy rule identifies clients by certificate, but this gRPC server does not request certificates, "
                "so the rule never matches. Set spec.grpc.tls.clientCaProvider.",
            )
