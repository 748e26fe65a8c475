"""Channels that filter calls before they send them."""

from typing import Any

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import XdsSource


def say(target: str, authorization: str, text: bytes) -> bytes:
    """Make a call that an authorization service must grant first."""
    check = authplane.grpc.ext_authz(authorization, credentials=None)
    with authplane.grpc.channel(target, filters=[check]) as channel:
        call: Any = channel.unary_unary("/example.Echo/Say")
        answer: bytes = call(text, timeout=5)
        return answer


async def say_through_xds(text: bytes, xds: XdsSource = True) -> bytes:
    """Make a call with the endpoints, routes and filters of a control plane."""
    async with authplane.grpc.aio.channel("xds:///echo.example", xds=xds) as channel:
        call: Any = channel.unary_unary("/example.Echo/Say")
        answer: bytes = await call(text, timeout=5)
        return answer
