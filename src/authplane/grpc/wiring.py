"""Builds the parts that servers and channels share from the arguments of the public functions."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

import grpc

from authplane.core.feature_flags import parse_guards
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.extauthz.wire import DEFAULT_OPTIONS, ExtAuthzOptions
from authplane.dataplane.filters.registry import FilterConfig, FilterType, Kept, Registry
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.dataplane.routing.call_filters import FixedRules
from authplane.dataplane.routing.resource_types import resource_types
from authplane.dataplane.runtime.calls.call_connection import own_principal
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.calls.filter_state import Count, Teller, filter_state
from authplane.dataplane.runtime.channels.channel_plan import Backends, Naming, Plan
from authplane.dataplane.runtime.channels.xds_channels import XdsCalling
from authplane.dataplane.runtime.channels.xds_targets import Reaching, XdsChannelCredentials, parse_target
from authplane.dataplane.runtime.connections.dialing import Options
from authplane.dataplane.runtime.servers.serving_states import Told
from authplane.dataplane.runtime.servers.xds_server import XdsSettings
from authplane.dataplane.runtime.xds.find_bootstrap import BootstrapSource, load_bootstrap

XdsSource: TypeAlias = str | os.PathLike[str] | dict[str, Any] | Literal[True]
"""The source of a bootstrap: a file, a dict with its values, or ``True`` for the environment."""
ChannelCredentials: TypeAlias = grpc.ChannelCredentials | XdsChannelCredentials | None

TARGET = "the target"
_DRAIN: Final = 600.0
"""Seconds that calls on old connections may take."""


def filter_registry(*types: FilterType, ext_authz: ExtAuthzOptions = DEFAULT_OPTIONS) -> Registry:
    """Return the filter types that xDS may configure: the standard ones and your own ``types``.

    The environment variables of gRPC disable standard types, such as
    ``GRPC_EXPERIMENTAL_XDS_EXT_AUTHZ_ON_SERVER=false``.
    """
    return standard_registry(parse_guards(os.environ), ext_authz).adding(*types)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Arguments of servers in addition to those of grpcio."""

    filters: Iterable[FilterConfig] | None
    registry: Registry | None
    certificate: bytes | None
    default_authority: str | None
    on_serving_state: Told | None
    drain: float | None
    drain_on_change: bool
    count: Count | None

    def gate(self) -> tuple[Gate, tuple[FilterConfig, ...]]:
        """Return a gate with the filters of the program."""
        _refuse(
            "has no effect without xDS. Set xds=True, or remove the argument.",
            registry=self.registry,
            on_serving_state=self.on_serving_state,
            drain=self.drain,
            drain_on_change=self.drain_on_change or None,
        )
        filters = tuple(self.filters or ())
        gate = Gate(
            rules=FixedRules.of(filters, filter_state(self.count, Teller(), Kept())),
            own_principal=own_principal(self.certificate),
            default_authority=self.default_authority,
            # A port with TLS sets this later.
            secured=False,
        )
        return gate, filters

    def settings(self, xds: XdsSource) -> XdsSettings:
        """Return the xDS settings of a server; raises `BootstrapError`."""
        _refuse(
            "has no effect with xDS, because the Listener names the filters. Remove the argument.", filters=self.filters
        )
        _refuse("has no effect with xDS. Use XdsServerCredentials.", certificate=self.certificate)
        bootstrap = load_bootstrap(_source(xds))
        return XdsSettings(
            bootstrap=bootstrap,
            types=resource_types(Side.SERVER, self.registry or filter_registry(), bootstrap),
            count=self.count,
            told=self.on_serving_state,
            drain=_DRAIN if self.drain is None else self.drain,
            drain_on_change=self.drain_on_change,
            default_authority=self.default_authority,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """Arguments of channels."""

    target: str
    credentials: ChannelCredentials
    options: Options | None
    compression: grpc.Compression | None
    filters: Iterable[FilterConfig] | None
    source: XdsSource | None
    registry: Registry | None
    count: Count | None

    @property
    def given(self) -> grpc.ChannelCredentials | None:
        """The credentials of a channel to a target that xDS does not resolve."""
        if isinstance(self.credentials, XdsChannelCredentials):
            raise TypeError("XdsChannelCredentials need an xDS target. Use a target that starts with xds:.")
        return self.credentials

    def plan(self) -> tuple[Naming, Plan, tuple[FilterConfig, ...]]:
        """Return a plan with the filters of the program."""
        _refuse(
            "has no effect on this target. Use a target that starts with xds:, or remove the argument.",
            xds=self.source,
            registry=self.registry,
        )
        filters = tuple(self.filters or ())
        state = filter_state(self.count, Teller(), Kept())
        plan = Plan(rules=FixedRules.of(filters, state), clusters={"": Backends(keys=(TARGET,))}, draw=state.random)
        return Naming(target=self.target, authority=_authority(self.target, self.options)), plan, filters

    def xds(self) -> XdsCalling:
        """Return the parts of a channel to an xDS target; raises `BootstrapError`."""
        _refuse(
            "has no effect on an xDS target, because the control plane names the filters. Remove the argument.",
            filters=self.filters,
        )
        bootstrap = load_bootstrap(_source(True if self.source is None else self.source))
        named = parse_target(self.target, bootstrap)
        return XdsCalling(
            target=self.target,
            named=named,
            bootstrap=bootstrap,
            types=resource_types(Side.CLIENT, self.registry or filter_registry(), bootstrap),
            reaching=Reaching(
                authority=named.authority,
                credentials=self.credentials,
                options=tuple(self.options or ()),
                compression=self.compression,
                providers=bootstrap.certificate_providers,
            ),
            count=self.count,
        )


def _refuse(why: str, **arguments: object) -> None:
    """Raise `TypeError` if one of these arguments is set: an argument without effect is a mistake of the caller."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name} {why}")


def _source(xds: XdsSource) -> BootstrapSource:
    if isinstance(xds, bool) and not xds:
        raise TypeError(
            "xds is False. Use True, the path of a bootstrap or a dict, or remove the argument for a server without"
            " xDS."
        )
    return None if xds is True else xds


def _authority(target: str, options: Options | None) -> str:
    """Return the authority of a channel's calls, as gRPC derives it from the target."""
    chosen = [value for name, value in options or () if name == "grpc.default_authority"]
    return chosen[-1] if chosen else target.rpartition("/")[2]


def joined(values: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the values as a tuple; None becomes an empty one."""
    return tuple(values or ())
