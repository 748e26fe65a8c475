"""Filters that a program names in its own code."""

from collections.abc import Sequence
from typing import Literal

import grpc

from authplane.filters.calls import Metadata
from authplane.filters.extauthz.cache import Caching
from authplane.filters.extauthz.check.shown import CheckForm, Shown
from authplane.filters.extauthz.filter import FAIL_CLOSED, ExtAuthz, FailurePolicy
from authplane.filters.extauthz.grpc_service.service import GrpcService, NamedCredentials, SideChannel
from authplane.xds.credentials import Insecure


def ext_authz(  # noqa: PLR0913 (all but one have defaults)
    target: str,
    *,
    credentials: grpc.ChannelCredentials | None,
    timeout: float | None = 1.0,
    on_failure: FailurePolicy = FAIL_CLOSED,
    cache: Caching | None = None,
    check_request: Literal["a92", "envoy"] = "a92",
    peer_certificate: bool = False,
    metadata: Sequence[tuple[str, str | bytes]] = (),
) -> ExtAuthz:
    """Return a filter that asks an authorization service about every call.

    ``credentials`` are for the channel to the service; None means plain text. A check may take ``timeout`` seconds, and
    never longer than the call that it is about; without a decision the call is refused, unless ``on_failure`` is
    `FailOpen`. ``check_request="envoy"`` writes checks in the form that services made for Envoy read. ``metadata`` goes
    with every check. More can be said with `ExtAuthz` itself.
    """
    named = NamedCredentials(channel=Insecure()) if credentials is None else credentials
    extra: Metadata = tuple(metadata)
    return ExtAuthz(
        service=GrpcService(channel=SideChannel(target=target, credentials=named), timeout=timeout, metadata=extra),
        on_failure=on_failure,
        shown=Shown(peer_certificate=peer_certificate, form=CheckForm(check_request)),
        caching=cache,
    )
