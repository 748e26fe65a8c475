"""The filters that come with the program."""

from authplane.base.guards import Guards
from authplane.filters.composite.wire import composite_type
from authplane.filters.extauthz.wire import ALL_ON, DEFAULT_OPTIONS, ExtAuthzOptions, ext_authz_type
from authplane.filters.fault.wire import FAULT
from authplane.filters.rbac.wire import RBAC
from authplane.filters.registry import Registry
from authplane.filters.router.wire import ROUTER


def standard_registry(guards: Guards = ALL_ON, ext_authz: ExtAuthzOptions = DEFAULT_OPTIONS) -> Registry:
    """Make a registry of the filters that are switched on; a program adds its own."""
    guarded = (ext_authz_type(ext_authz, guards), composite_type(guards))
    return Registry.of(ROUTER, FAULT, RBAC, *(each for each in guarded if each is not None))
