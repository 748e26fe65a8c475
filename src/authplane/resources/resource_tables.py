"""The resources in force by kind and name, kept up to date one by one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from authplane.core.names import ObjectName, Ref
from authplane.resources.catalogue import Resource
from authplane.resources.documents import Resources, StoredAncestor
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

T = TypeVar("T")


class Table(dict[ObjectName, T]):
    """Values by name. A view is sorted, never changes, and is the same object while nothing changes."""

    def __init__(self) -> None:
        super().__init__()
        self._view: Mapping[ObjectName, T] | None = None
        self._sorted = True

    def put(self, name: ObjectName, value: T) -> None:
        """Add or replace a value."""
        self._sorted = self._sorted and name in self
        self._view = None
        self[name] = value

    def drop(self, name: ObjectName) -> None:
        """Remove a value if it is there."""
        if self.pop(name, None) is not None:
            self._view = None

    def view(self) -> Mapping[ObjectName, T]:
        """Return the values of now, in the order of their names."""
        if not self._sorted:
            ordered = sorted(self.items(), key=_order)
            self.clear()
            self.update(ordered)
            self._sorted = True
        if self._view is None:
            self._view = MappingProxyType(dict(self))
        return self._view


class Tables:
    """Every resource in force."""

    def __init__(self) -> None:
        self._services: Table[Service] = Table()
        self._secrets: Table[Secret] = Table()
        self._config_maps: Table[ConfigMap] = Table()
        self._slices: Table[EndpointSlice] = Table()
        self._slices_of: dict[ObjectName, dict[str, EndpointSlice]] = {}
        self._slices_by_service: Table[tuple[EndpointSlice, ...]] = Table()
        self._regroup: set[ObjectName] = set()
        self._proxies: Table[HTTPProxy] = Table()
        self._extension_services: Table[ExtensionService] = Table()
        self._backends: Table[Backend] = Table()
        self._x_backends: Table[XBackend] = Table()
        self._access_policies: Table[AccessPolicy] = Table()
        self._x_access_policies: Table[XAccessPolicyV0 | XAccessPolicy] = Table()
        self._gateways: Table[Gateway] = Table()
        self._http_routes: Table[HTTPRoute] = Table()
        self._delegations: Table[TLSCertificateDelegation] = Table()
        self._grants: Table[ReferenceGrant] = Table()
        self._backend_tls_policies: Table[BackendTLSPolicy] = Table()
        self._authorization_services: Table[AuthorizationService] = Table()
        self._configurations: Table[AuthplaneConfiguration] = Table()
        self._contour_configurations: Table[ContourConfiguration] = Table()
        self._contour_deployments: Table[ContourDeployment] = Table()
        self._contour_files: Table[ContourFile] = Table()
        self._plain: Mapping[type, Table[Any]] = {
            Service: self._services,
            Secret: self._secrets,
            ConfigMap: self._config_maps,
            HTTPProxy: self._proxies,
            ExtensionService: self._extension_services,
            Backend: self._backends,
            XBackend: self._x_backends,
            AccessPolicy: self._access_policies,
            XAccessPolicyV0: self._x_access_policies,
            XAccessPolicy: self._x_access_policies,
            Gateway: self._gateways,
            HTTPRoute: self._http_routes,
            TLSCertificateDelegation: self._delegations,
            ReferenceGrant: self._grants,
            BackendTLSPolicy: self._backend_tls_policies,
            AuthorizationService: self._authorization_services,
            AuthplaneConfiguration: self._configurations,
            ContourConfiguration: self._contour_configurations,
            ContourDeployment: self._contour_deployments,
            ContourFile: self._contour_files,
        }

    def put(self, resource: Resource) -> None:
        """Bring a resource into force."""
        name = _key(resource)
        if isinstance(resource, EndpointSlice):
            self._drop_slice(name)
            self._put_slice(name, resource)
        else:
            self._plain[type(resource)].put(name, resource)

    def drop(self, resource: Resource) -> None:
        """Take a resource out of force."""
        name = _key(resource)
        if isinstance(resource, EndpointSlice):
            self._drop_slice(name)
        else:
            self._plain[type(resource)].drop(name)

    def resources(
        self,
        broken: frozenset[Ref],
        broken_policies: Mapping[Ref, tuple[Ref, ...] | None],
        broken_tls_policies: Mapping[Ref, tuple[Ref, ...] | None],
        stored_ancestors: Mapping[Ref, tuple[StoredAncestor, ...]],
        doubt: str,
    ) -> Resources:
        """Return what is in force now."""
        for service in self._regroup:
            self._group(service)
        self._regroup.clear()
        return Resources(
            services=self._services.view(),
            secrets=self._secrets.view(),
            config_maps=self._config_maps.view(),
            endpoint_slices=self._slices_by_service.view(),
            proxies=self._proxies.view(),
            extension_services=self._extension_services.view(),
            backends=self._backends.view(),
            x_backends=self._x_backends.view(),
            access_policies=self._access_policies.view(),
            x_access_policies=self._x_access_policies.view(),
            gateways=self._gateways.view(),
            http_routes=self._http_routes.view(),
            delegations=self._delegations.view(),
            grants=self._grants.view(),
            backend_tls_policies=self._backend_tls_policies.view(),
            authorization_services=self._authorization_services.view(),
            configuration=_only(self._configurations),
            contour_configuration=_only(self._contour_configurations),
            contour_deployment=_only(self._contour_deployments),
            contour_files=self._contour_files.view(),
            broken=broken,
            broken_policies=broken_policies,
            broken_tls_policies=broken_tls_policies,
            stored_ancestors=stored_ancestors,
            doubt=doubt,
        )

    def _put_slice(self, name: ObjectName, resource: EndpointSlice) -> None:
        self._slices.put(name, resource)
        if resource.service:
            service = ObjectName(name.namespace, resource.service)
            self._slices_of.setdefault(service, {})[name.name] = resource
            self._regroup.add(service)

    def _drop_slice(self, name: ObjectName) -> None:
        old = self._slices.get(name)
        self._slices.drop(name)
        if old is not None and old.service:
            service = ObjectName(name.namespace, old.service)
            del self._slices_of[service][name.name]
            self._regroup.add(service)

    def _group(self, service: ObjectName) -> None:
        slices = self._slices_of[service]
        if slices:
            self._slices_by_service.put(service, tuple(slices[name] for name in sorted(slices)))
        else:
            del self._slices_of[service]
            self._slices_by_service.drop(service)


def _key(resource: Resource) -> ObjectName:
    if isinstance(resource, ContourFile):
        return resource.ref.object_name
    single = isinstance(resource, AuthplaneConfiguration | ContourConfiguration | ContourDeployment)
    return ObjectName("", "") if single else resource.metadata.object_name


def _only(table: Table[T]) -> T | None:
    """Return the value of a table that has at most one."""
    return next(iter(table.values()), None)


def _order(item: tuple[ObjectName, object]) -> tuple[str, str]:
    return item[0].namespace, item[0].name
