"""Creates filters for programs that set them in code."""

from collections.abc import Sequence
from typing import Literal

import grpc
from google.protobuf.message import Message

from authplane.core.problems import Problems
from authplane.dataplane.filters.calls import Metadata, Side
from authplane.dataplane.filters.extauthz.authorize_call import FAIL_CLOSED, ExtAuthz, FailurePolicy
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown, check_form
from authplane.dataplane.filters.extauthz.decision_cache import Caching
from authplane.dataplane.filters.extauthz.service_config.service import GrpcService, NamedCredentials, SideChannel
from authplane.dataplane.filters.extensions.wire import parse_filter
from authplane.dataplane.filters.registry import FilterConfig, Packed, Registry, Scope, Trust
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.xds.bootstrap.credentials import Insecure


def ext_authz(  # noqa: PLR0913 (all but one have defaults)
    target: str,
    *,
    credentials: grpc.ChannelCredentials | None,
    timeout: float | None = 1.0,
    on_failure: FailurePolicy = FAIL_CLOSED,
    cache: Caching | None = None,
    check_request: CheckForm | Literal["a92", "envoy"] = "a92",
    peer_certificate: bool = False,
    metadata: Sequence[tuple[str, str | bytes]] = (),
) -> ExtAuthz:
    """Return a filter that sends a check to an authorization service for every call.

    ``credentials`` secure the channel to the service; None means plaintext. A check ends after ``timeout`` seconds, or
    at the deadline of the call. Without a decision the call is denied, unless ``on_failure`` is `FailOpen`.
    ``check_request="envoy"`` writes checks in the form that services for Envoy expect. ``metadata`` is sent with every
    check. `ExtAuthz` has further settings.
    """
    named = NamedCredentials(channel=Insecure()) if credentials is None else credentials
    extra: Metadata = tuple(metadata)
    return ExtAuthz(
        service=GrpcService(channel=SideChannel(target=target, credentials=named), timeout=timeout, metadata=extra),
        on_failure=on_failure,
        shown=Shown(peer_certificate=peer_certificate, form=check_form(check_request)),
        caching=cache,
    )


def filter_from(config: Message, *, side: Side = Side.SERVER, registry: Registry | None = None) -> FilterConfig:
    """Return the filter that a message configures, such as the result of `authplane.grpc.matching.composite`.

    The message is parsed as if a trusted control plane had sent it, for servers by default. Raises `ValueError` with
    every problem. ``registry`` has the supported filter types; the default is the standard registry.
    """
    known = standard_registry() if registry is None else registry
    name = config.DESCRIPTOR.full_name
    kind = known.configs.get(name)
    if kind is None or kind.terminal:
        raise ValueError(
            f"{name} does not configure a filter. Use the configuration of a filter that does not end the chain."
        )
    if side not in kind.sides:
        raise ValueError(f"{name} is not supported on {side.value}s. Use another filter.")
    problems = Problems()
    packed = Packed(name, config.SerializeToString(deterministic=True))
    made = parse_filter(kind, packed, Scope(side=side, trust=Trust(trusted=True), registry=known), problems)
    if made is None:
        raise ValueError("\n".join(map(str, problems)))
    return made
