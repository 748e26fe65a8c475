"""Rendered resources as text for people and programs."""

import json
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from authplane.controlplane.render.newer_fields import newer_messages
from authplane.controlplane.render.rendered import Rendered

REDACTED: Final = "[redacted]"


def dump(rendered: Rendered, *, show_secrets: bool) -> dict[str, Any]:
    """Return the resources as protobuf JSON; private keys only with ``show_secrets``."""
    secrets = _dicts(rendered.secrets)
    if not show_secrets:
        for secret in secrets:
            secret["tlsCertificate"]["privateKey"]["inlineBytes"] = REDACTED
    extensions = {"extensions": _dicts(rendered.extensions)} if rendered.extensions else {}
    servers = {"grpcListeners": _dicts(rendered.grpc_listeners)} if rendered.grpc_listeners else {}
    return {
        "listeners": _dicts(rendered.listeners),
        "routes": _dicts(rendered.routes),
        "clusters": _dicts(rendered.clusters),
        "endpoints": _dicts(rendered.endpoints),
        "secrets": secrets,
        **extensions,
        **servers,
    }


def json_text(message: Message) -> str:
    """Return one message as protobuf JSON."""
    return json.dumps(MessageToDict(message, descriptor_pool=newer_messages()), indent=2, sort_keys=True) + "\n"


def _dicts(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [_ordered(MessageToDict(message, descriptor_pool=newer_messages())) for message in messages]


def _ordered(value: Any) -> Any:
    """Sort the keys: protobuf's maps have no order, and the same resources must print the same text."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(each) for each in value] if isinstance(value, list) else value
