"""The filters that come with the program."""

from authplane.core.feature_flags import FeatureFlags
from authplane.dataplane.filters.composite.wire import composite_type
from authplane.dataplane.filters.extauthz.wire import ALL_ON, DEFAULT_OPTIONS, ExtAuthzOptions, ext_authz_type
from authplane.dataplane.filters.fault.wire import FAULT
from authplane.dataplane.filters.rbac.wire import RBAC
from authplane.dataplane.filters.registry import Registry
from authplane.dataplane.filters.router.wire import ROUTER


def standard_registry(flags: FeatureFlags = ALL_ON, ext_authz: ExtAuthzOptions = DEFAULT_OPTIONS) -> Registry:
    """Make a registry of the filters that are switched on; a program adds its own."""
    guarded = (ext_authz_type(ext_authz, flags), composite_type(flags))
    return Registry.of(ROUTER, FAULT, RBAC, *(each for each in guarded if each is not None))
