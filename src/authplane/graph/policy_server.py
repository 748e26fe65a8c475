"""The authorization server that decides by AccessPolicies, as Envoy reaches it."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias, assert_never

from authplane.base.addresses import is_loopback
from authplane.base.names import ObjectName
from authplane.base.problems import Problems
from authplane.base.timeouts import After, Timeout, UseDefault, parse_timeout
from authplane.graph.guards import AuthorizationService, CheckedBody, FailClosed, OverGrpc
from authplane.graph.reports import Reports
from authplane.graph.secrets import Unusable, ca_bundle
from authplane.graph.settings_places import configuration_ref
from authplane.graph.upstreams import (
    CaFile,
    Destinations,
    ExtensionCluster,
    ExternalName,
    HttpVersion,
    Plaintext,
    SocketFile,
    VerifiedTls,
)
from authplane.resources.documents import Resources
from authplane.resources.kinds.authplane import PolicyServer as Written

POLICY_CLUSTER: Final = "authplane/policy"
_AUTHORITY: Final = "authplane.policy"
_OURS: Final = ObjectName("", "policy")
"""No object has this name."""
_UNAVAILABLE: Final = 503
_LONGEST_DECISION: Final = After(timedelta(seconds=5))
_NO_TLS: Final = Plaintext()
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])")


@dataclass(frozen=True, slots=True)
class OverTcp:
    """Reached over the network, or over the loopback interface."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class OverSocket:
    """Reached over a socket in the file system."""

    path: str


Where: TypeAlias = OverTcp | OverSocket


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyServer:
    """Where decisions are made and how long one may take."""

    where: Where = OverTcp("127.0.0.1", 9443)
    tls: Plaintext | VerifiedTls = _NO_TLS
    timeout: Timeout = _LONGEST_DECISION


LOCAL_POLICY_SERVER: Final = PolicyServer()


def read_policy_server(resources: Resources, reports: Reports) -> PolicyServer:
    """Read ``policyServer`` of the configuration; what is wrong there makes the configuration unusable."""
    configuration = resources.configuration
    written = configuration.spec.policy_server if configuration is not None else None
    if configuration is None or written is None:
        return LOCAL_POLICY_SERVER
    problems = reports.of(configuration_ref(configuration))
    with problems.at("spec", "policyServer"):
        where = _where(written.address, problems)
        tls = _tls(written, where, resources, problems)
        timeout = _timeout(written.timeout, problems)
    return PolicyServer(where=where, tls=tls, timeout=timeout)


def policy_service(server: PolicyServer, most_bytes: int) -> AuthorizationService:
    """Return how checks are made: with the whole body, or not at all, and without an answer nothing goes through."""
    return AuthorizationService(
        cluster=POLICY_CLUSTER,
        protocol=OverGrpc(authority=_AUTHORITY),
        timeout=server.timeout,
        on_failure=FailClosed(status=_UNAVAILABLE),
        body=CheckedBody(most_bytes=most_bytes, as_bytes=True),
    )


def policy_cluster(server: PolicyServer) -> ExtensionCluster:
    """Return the cluster of the policy server."""
    return ExtensionCluster(
        name=POLICY_CLUSTER,
        object_name=_OURS,
        version=HttpVersion.HTTP2,
        tls=server.tls,
        destinations=_destinations(server.where),
        authority=_AUTHORITY,
        response_timeout=server.timeout,
    )


def _destinations(where: Where) -> Destinations:
    match where:
        case OverTcp(host, port):
            return (ExternalName(service=_OURS, weight=1, host=host, port=port, ipv4_first=True, searched=True),)
        case OverSocket(path):
            return (SocketFile(service=_OURS, weight=1, path=path),)
        case _:
            assert_never(where)


def _where(address: str, problems: Problems) -> Where:
    with problems.at("address"):
        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            if not path.startswith("/") or len(path) > 107:  # what a socket's address has room for
                problems.add("PolicyServerNotValid", f"{address!r} must be 'unix:' and an absolute path of a socket")
            return OverSocket(path)
        host, _, port = address.rpartition(":")
        if not _HOST.fullmatch(host) or not port.isdecimal() or not 1 <= int(port) <= 65535:
            problems.add("PolicyServerNotValid", f"{address!r} is not an address such as 'policy.example:9443'")
            return OverTcp("127.0.0.1", 1)
        return OverTcp(host.strip("[]"), int(port))


def _tls(written: Written, where: Where, resources: Resources, problems: Problems) -> Plaintext | VerifiedTls:
    ca = _ca(written, resources, problems)
    local = isinstance(where, OverSocket) or is_loopback(where.host)
    if ca is None:
        if not local:
            problems.add(
                "PolicyServerNotValid",
                "whoever answers there would decide: give caFile or caSecret, or an address of this machine",
            )
        if written.server_name:
            with problems.at("serverName"):
                problems.add("PolicyServerNotValid", "there is no TLS without caFile or caSecret")
        return _NO_TLS
    name = written.server_name or (where.host if isinstance(where, OverTcp) else "")
    if not name:
        with problems.at("serverName"):
            problems.add("PolicyServerNotValid", "a socket has no name: say which one the certificate must have")
    return VerifiedTls(ca=ca, subject_names=(name,), server_name=name)


def _ca(written: Written, resources: Resources, problems: Problems) -> bytes | CaFile | None:
    if written.ca_secret is None:
        return CaFile(written.ca_file) if written.ca_file else None
    with problems.at("caSecret"):
        if written.ca_file:
            problems.add("PolicyServerNotValid", "give caFile or caSecret, not both")
        name = ObjectName(written.ca_secret.namespace, written.ca_secret.name)
        bundle = ca_bundle(resources, name)
        if isinstance(bundle, Unusable):
            problems.add("PolicyServerNotValid", f'Secret "{name}" cannot be used: {bundle}')
            return b""
        return bundle


def _timeout(text: str, problems: Problems) -> Timeout:
    parsed = parse_timeout(text)
    if isinstance(parsed, After):
        return parsed
    if not isinstance(parsed, UseDefault):
        with problems.at("timeout"):
            problems.add("PolicyServerNotValid", f"{text!r} is not a duration such as '2s'")
    return _LONGEST_DECISION
