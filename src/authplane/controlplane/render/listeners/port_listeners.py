"""Listeners: a connection manager for all hosts of a port without TLS, one for each chain behind it."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, assert_never

from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.controlplane.graph.model.graph_model import ConnectionSettings
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.port_model import (
    Address,
    ClientCertificates,
    PlainPort,
    Port,
    SecurePort,
    TlsChain,
)
from authplane.controlplane.graph.model.upstreams import TlsLimits
from authplane.controlplane.render.envoy_pieces import FROM_ADS, TLS_VERSIONS, pack, socket_address
from authplane.controlplane.render.listeners.connection_needs import Needs
from authplane.controlplane.render.listeners.http_connections import connection_manager
from authplane.controlplane.render.resource_parts import Part, Whole
from authplane.core.names import ObjectName

_BUFFER_LIMIT: Final = 32 * 1024


def listeners_of(
    ports: Iterable[Port], connections: ConnectionSettings, needs: Needs
) -> Iterator[Whole[listener_pb2.Listener]]:
    """Return the listener of every port."""
    for port in ports:
        shell = _shell(port.name, port.where, max(needs.of(table).held for table in port.tables))
        match port:
            case PlainPort(table=table):
                manager = connection_manager(port.counted_as, table.name, needs.chain(table), connections)
                shell.filter_chains.append(listener_components_pb2.FilterChain(filters=[manager]))
                yield Whole(port.name, shell, "filter_chains", ())
            case SecurePort(chains=chains, counted_as=counted):
                shell.listener_filters.append(_tls_inspector())
                parts = tuple(
                    Part("chain", each, partial(_chain, each, counted, connections, needs), (counted, connections))
                    for each in chains
                )
                yield Whole(port.name, shell, "filter_chains", parts)
            case _:
                assert_never(port)


def _shell(name: str, address: Address, held: int = 0) -> listener_pb2.Listener:
    """Render a listener without its chains; ``held`` is how many bytes of a request may be buffered for a check."""
    return listener_pb2.Listener(
        name=name,
        address=socket_address(address.address, address.port),
        per_connection_buffer_limit_bytes=UInt32Value(value=_BUFFER_LIMIT + held),
    )


def _tls_inspector() -> listener_components_pb2.ListenerFilter:
    """Render the filter that reads the server name (SNI) of a TLS client."""
    return listener_components_pb2.ListenerFilter(
        name="envoy.filters.listener.tls_inspector", typed_config=pack(tls_inspector_pb2.TlsInspector())
    )


def _chain(
    chain: TlsChain, counted_as: str, connections: ConnectionSettings, needs: Needs
) -> listener_components_pb2.FilterChain:
    filters = needs.chain(chain.table)
    tls = _tls_context(chain.certificates, chain.limits)
    if chain.clients is not None:
        _ask_for_certificates(tls, chain.clients)
    if filters.natives is not None and filters.natives.certificates:
        # Rules are for certificates that were verified, and on a session that is resumed Envoy does not verify any.
        tls.disable_stateless_session_resumption = True
        tls.disable_stateful_session_resumption = True
    match = listener_components_pb2.FilterChainMatch(transport_protocol="" if chain.by_name_alone else "tls")
    if chain.hostname != ANY:
        match.server_names.append(chain.hostname)
    forwarded = chain.clients.forwarded if chain.clients is not None else None
    return listener_components_pb2.FilterChain(
        name=chain.name,
        filter_chain_match=match,
        filters=[connection_manager(counted_as, chain.table.name, filters, connections, forwarded)],
        transport_socket=_transport_socket(tls),
    )


def _transport_socket(tls: tls_pb2.DownstreamTlsContext) -> base_pb2.TransportSocket:
    """Render TLS as what a chain is spoken over."""
    return base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(tls))


def _tls_context(certificates: Iterable[ObjectName], limits: TlsLimits) -> tls_pb2.DownstreamTlsContext:
    """Render TLS with certificates that come over SDS."""
    return tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(
            alpn_protocols=["h2", "http/1.1"],
            tls_params=common_pb2.TlsParameters(
                tls_minimum_protocol_version=TLS_VERSIONS[limits.minimum],
                tls_maximum_protocol_version=TLS_VERSIONS[limits.maximum],
                cipher_suites=limits.ciphers,
                ecdh_curves=limits.curves,
            ),
            tls_certificate_sds_secret_configs=[
                secret_pb2.SdsSecretConfig(name=str(each), sds_config=FROM_ADS) for each in certificates
            ],
        )
    )


def _ask_for_certificates(tls: tls_pb2.DownstreamTlsContext, clients: ClientCertificates) -> None:
    """Add which certificates clients show."""
    trust = common_pb2.CertificateValidationContext.TrustChainVerification
    validation = common_pb2.CertificateValidationContext(
        trust_chain_verification=trust.VERIFY_TRUST_CHAIN if clients.verified else trust.ACCEPT_UNTRUSTED,
        only_verify_leaf_cert_crl=clients.leaf_only,
    )
    if clients.ca is not None:
        validation.trusted_ca.inline_bytes = clients.ca
    if clients.revoked is not None:
        validation.crl.inline_bytes = clients.revoked
    tls.common_tls_context.validation_context.CopyFrom(validation)
    tls.require_client_certificate.value = clients.required
