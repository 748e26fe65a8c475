"""The documents of one generation, immutable and indexed."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple

from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.resources.kinds.agentic import AccessPolicy, Backend, XAccessPolicy, XAccessPolicyV0, XBackend
from authplane.resources.kinds.authorization_service_kind import AuthorizationService
from authplane.resources.kinds.backend_tls_policy import BackendTLSPolicy
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.contour import HTTPProxy, TLSCertificateDelegation
from authplane.resources.kinds.contour_file import ContourFile
from authplane.resources.kinds.contour_settings import ContourConfiguration, ContourDeployment
from authplane.resources.kinds.core import ConfigMap, EndpointSlice, Secret, Service
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.resources.kinds.gateway import Gateway, HTTPRoute, ReferenceGrant


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file; lines and columns count from 1. Line 0 means the file as a whole."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, its place, and its resource (None if that could not be read)."""

    place: Place
    ref: Ref | None
    problem: Problem


class StoredAncestor(NamedTuple):
    """An entry in the status of a policy, as its document has it."""

    controller: str
    """Empty where that cannot be read."""
    text: str
    """The whole entry as JSON."""


@dataclass(frozen=True, slots=True)
class UnreadProxy:
    """An HTTPProxy that cannot be used and has no earlier version, or a file that may contain one."""

    who: str
    """Its name, or that of the file."""
    namespace: str
    """Empty where it cannot be read."""
    host: str | None
    """The name that it claims as a root; None where that cannot be read, so that it may be any."""
    ingress_class: str | None = None
    """Empty if it says nothing; None where that cannot be read, so that it may be any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Every usable document by name. What is broken and has no earlier version is named in ``broken``."""

    services: Mapping[ObjectName, Service] = field(default_factory=lambda: MappingProxyType({}))
    secrets: Mapping[ObjectName, Secret] = field(default_factory=lambda: MappingProxyType({}))
    config_maps: Mapping[ObjectName, ConfigMap] = field(default_factory=lambda: MappingProxyType({}))
    endpoint_slices: Mapping[ObjectName, tuple[EndpointSlice, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By Service, in the order of the slices' names."""
    proxies: Mapping[ObjectName, HTTPProxy] = field(default_factory=lambda: MappingProxyType({}))
    extension_services: Mapping[ObjectName, ExtensionService] = field(default_factory=lambda: MappingProxyType({}))
    backends: Mapping[ObjectName, Backend] = field(default_factory=lambda: MappingProxyType({}))
    x_backends: Mapping[ObjectName, XBackend] = field(default_factory=lambda: MappingProxyType({}))
    access_policies: Mapping[ObjectName, AccessPolicy] = field(default_factory=lambda: MappingProxyType({}))
    x_access_policies: Mapping[ObjectName, XAccessPolicyV0 | XAccessPolicy] = field(
        default_factory=lambda: MappingProxyType({})
    )
    gateways: Mapping[ObjectName, Gateway] = field(default_factory=lambda: MappingProxyType({}))
    http_routes: Mapping[ObjectName, HTTPRoute] = field(default_factory=lambda: MappingProxyType({}))
    delegations: Mapping[ObjectName, TLSCertificateDelegation] = field(default_factory=lambda: MappingProxyType({}))
    grants: Mapping[ObjectName, ReferenceGrant] = field(default_factory=lambda: MappingProxyType({}))
    backend_tls_policies: Mapping[ObjectName, BackendTLSPolicy] = field(default_factory=lambda: MappingProxyType({}))
    authorization_services: Mapping[ObjectName, AuthorizationService] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """For `authplane authserver serve` alone: a control plane does not use them."""
    configuration: AuthplaneConfiguration | None = None
    contour_configuration: ContourConfiguration | None = None
    contour_deployment: ContourDeployment | None = None
    contour_files: Mapping[ObjectName, ContourFile] = field(default_factory=lambda: MappingProxyType({}))
    broken: frozenset[Ref] = frozenset()
    """Documents that exist, cannot be read and have no earlier good version: referring to one is an error.

    A configuration of which not even the name can be read is among them without one.
    """
    broken_policies: Mapping[Ref, tuple[Ref, ...] | None] = field(default_factory=lambda: MappingProxyType({}))
    """Policies among the broken, and what they were meant to protect; None where that cannot be read either."""
    broken_tls_policies: Mapping[Ref, tuple[Ref, ...] | None] = field(default_factory=lambda: MappingProxyType({}))
    """BackendTLSPolicies among the broken, and their targets; None where those cannot be read either.

    One without a namespace may be in the file that it is named after, and for anything.
    """
    stored_ancestors: Mapping[Ref, tuple[StoredAncestor, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The entries in the status of a policy about its ancestors, of all controllers."""
    unread_proxies: tuple[UnreadProxy, ...] = ()
    doubt: str = ""
    """A file that may contain a policy and cannot be read: it may protect any target. Empty if there is none."""
