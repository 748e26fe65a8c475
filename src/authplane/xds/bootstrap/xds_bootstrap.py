"""The xDS bootstrap: the servers that configure a gRPC client or server, and its node id.

Types are checked strictly and every problem is reported; unknown fields are ignored, as newer writers add some.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from authplane.core.feature_flags import FeatureFlags
from authplane.core.problems import Problem, Problems
from authplane.core.strict_json import Limits, NotStrict, parse_json
from authplane.core.values import dataclass
from authplane.xds.bootstrap.credentials import (
    CallCredentials,
    ChannelCredentials,
    ServiceCredentials,
    TlsFiles,
    parse_service_credentials,
    parse_tls_files,
)
from authplane.xds.bootstrap.json_fields import Fields

T = TypeVar("T")

MOST_BYTES: Final = 1024 * 1024
"""How large a bootstrap may be."""

_LIMITS: Final = Limits(most_bytes=MOST_BYTES)


class Feature(StrEnum):
    """What a server is known to do, or asks of its clients."""

    XDS_V3 = "xds_v3"
    IGNORE_RESOURCE_DELETION = "ignore_resource_deletion"
    FAIL_ON_DATA_ERRORS = "fail_on_data_errors"
    RESOURCE_TIMER_IS_TRANSIENT_ERROR = "resource_timer_is_transient_error"
    TRUSTED_XDS_SERVER = "trusted_xds_server"


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsServer:
    """A server of configuration; equal ones can share a connection."""

    uri: str
    channel_creds: ChannelCredentials
    call_creds: tuple[CallCredentials, ...] = ()
    """All of them apply, in order."""
    features: frozenset[Feature] = frozenset()

    @property
    def trusted(self) -> bool:
        """Whether its resources may name any service to call, and the credentials for it."""
        return Feature.TRUSTED_XDS_SERVER in self.features


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """Where a program runs."""

    region: str = ""
    zone: str = ""
    sub_zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Who a program says it is."""

    id: str = ""
    cluster: str = ""
    locality: Locality = field(default_factory=Locality)
    metadata: str = "{}"
    """A JSON object, in canonical form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Where the resources of one authority come from."""

    servers: tuple[XdsServer, ...] = ()
    """In order of preference; none means the servers of the bootstrap."""
    listener_template: str
    """The name of a client's Listener, with ``%s`` for what the target names."""
    fallback_on_reachability_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What a program knows before it contacts a server."""

    servers: tuple[XdsServer, ...]
    """At least one, in order of preference."""
    node: Node = field(default_factory=Node)
    authorities: Mapping[str, Authority] = field(default_factory=lambda: MappingProxyType({}))
    listener_template: str | None = None
    """The name of a server's Listener, with ``%s`` for its address; without one no server can be configured."""
    client_listener_template: str = "%s"
    """The name of a client's Listener, with ``%s`` for what the target names, where that names no authority."""
    certificate_providers: Mapping[str, TlsFiles] = field(default_factory=lambda: MappingProxyType({}))
    """By instance name. Those of plugins that are not supported are left out."""
    allowed_grpc_services: Mapping[str, ServiceCredentials] = field(default_factory=lambda: MappingProxyType({}))
    """Targets that resources of servers that are not trusted may name, and how to talk to each."""


def parse_bootstrap(text: bytes, environment: FeatureFlags) -> Bootstrap | tuple[Problem, ...]:
    """Read a bootstrap, or say everything that is wrong with it."""
    problems = Problems()
    value = parse_json(text, _LIMITS)
    if isinstance(value, NotStrict):
        problems.add("NotJson", f"Cannot read the bootstrap: {value.why}. Correct it.")
        return problems.errors
    root = Fields.of(value, problems)
    if root is None:
        return problems.errors
    made = _parse_root(root, environment)
    return problems.errors or made


def _parse_root(root: Fields, flags: FeatureFlags) -> Bootstrap:
    root.require_elements("xds_servers")
    return Bootstrap(
        servers=_parse_servers(root, flags),
        node=_parse_node(root),
        authorities=_frozen(_parse_authorities(root, flags)),
        listener_template=root.text("server_listener_resource_name_template"),
        client_listener_template=root.text("client_default_listener_resource_name_template") or "%s",
        certificate_providers=_frozen(_parse_certificate_providers(root)),
        allowed_grpc_services=_frozen(_parse_allowed_services(root, flags)),
    )


def _parse_servers(fields: Fields, flags: FeatureFlags) -> tuple[XdsServer, ...]:
    return tuple(_parse_server(each, flags) for each in fields.objects("xds_servers"))


def _parse_server(fields: Fields, flags: FeatureFlags) -> XdsServer:
    uri = fields.required_path("server_uri")
    credentials = parse_service_credentials(fields, call_creds=flags.bootstrap_call_creds)
    # Features are any JSON: some day one may be more than a word.
    named = frozenset(each for each in fields.items("server_features") if isinstance(each, str))
    return XdsServer(
        uri=uri,
        channel_creds=credentials.channel,
        call_creds=credentials.calls,
        features=frozenset(each for each in Feature if each.value in named),
    )


def _parse_node(root: Fields) -> Node:
    fields = root.fields("node")
    if fields is None:
        return Node()
    with root.at("node"):
        return Node(
            id=fields.text("id") or "",
            cluster=fields.text("cluster") or "",
            locality=_parse_locality(fields),
            metadata=json.dumps(fields.mapping("metadata") or {}, sort_keys=True, separators=(",", ":")),
        )


def _parse_locality(node: Fields) -> Locality:
    fields = node.fields("locality")
    if fields is None:
        return Locality()
    with node.at("locality"):
        return Locality(
            region=fields.text("region") or "", zone=fields.text("zone") or "", sub_zone=fields.text("sub_zone") or ""
        )


def _parse_authorities(root: Fields, flags: FeatureFlags) -> Iterable[tuple[str, Authority]]:
    for name, fields in root.members("authorities"):
        prefix = f"xdstp://{name}/"
        template = fields.text("client_listener_resource_name_template")
        if template and not template.startswith(prefix):
            with fields.at("client_listener_resource_name_template"):
                fields.problems.add("Invalid", f"The name does not begin with '{prefix}'. Add this prefix.")
        yield (
            name,
            Authority(
                servers=_parse_servers(fields, flags),
                listener_template=template or f"{prefix}envoy.config.listener.v3.Listener/%s",
                fallback_on_reachability_only=fields.flag("fallback_on_reachability_only"),
            ),
        )


def _parse_certificate_providers(root: Fields) -> Iterable[tuple[str, TlsFiles]]:
    for name, fields in root.members("certificate_providers"):
        plugin = fields.required_text("plugin_name")
        config = fields.fields("config") or Fields({}, fields.problems)
        if plugin != "file_watcher":
            continue
        with fields.at("config"):
            files = parse_tls_files(config)
            if not any(config.has(each) for each in ("ca_certificate_file", "certificate_file", "private_key_file")):
                fields.problems.add(
                    "Missing",
                    "Neither a CA file nor a certificate with its key is set. Add "
                    "ca_certificate_file, or certificate_file and private_key_file.",
                )
        yield name, files


def _parse_allowed_services(root: Fields, flags: FeatureFlags) -> Iterable[tuple[str, ServiceCredentials]]:
    if not (flags.ext_authz_on_client or flags.ext_authz_on_server):
        return
    for target, fields in root.members("allowed_grpc_services"):
        if not target:
            fields.problems.add("Invalid", "The target is empty. Name a gRPC target.")
        yield target, parse_service_credentials(fields, call_creds=flags.bootstrap_call_creds)


def _frozen(pairs: Iterable[tuple[str, T]]) -> Mapping[str, T]:
    return MappingProxyType(dict(pairs))
