"""Environment variables that switch features off."""

from collections.abc import Mapping
from typing import Final

from authplane.core.values import dataclass

_PREFIX: Final = "GRPC_EXPERIMENTAL_XDS_"
_OFF: Final = frozenset({"false", "f", "0", "no", "n", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFlags:
    """Which features are on. What is off is not known at all: its filters are unknown types, its fields ignored."""

    ext_authz_on_client: bool = True
    ext_authz_on_server: bool = True
    composite_filter: bool = True
    bootstrap_call_creds: bool = True


def parse_guards(environment: Mapping[str, str]) -> FeatureFlags:
    """Read the variables: a feature is on unless its variable says ``false`` (or ``0``, ``no``, ``off``)."""

    def on(name: str) -> bool:
        return environment.get(_PREFIX + name, "").strip().lower() not in _OFF

    ext_authz = on("EXT_AUTHZ")
    return FeatureFlags(
        ext_authz_on_client=ext_authz and on("EXT_AUTHZ_ON_CLIENT"),
        ext_authz_on_server=ext_authz and on("EXT_AUTHZ_ON_SERVER"),
        composite_filter=on("COMPOSITE_FILTER"),
        bootstrap_call_creds=on("BOOTSTRAP_CALL_CREDS"),
    )
