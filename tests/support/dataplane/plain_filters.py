"""Filters that show what they were built from, and the registry that knows them."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from google.protobuf.message import DecodeError, Message

from authplane.core.problems import Problem
from authplane.dataplane.filters.calls import Call, Flow, Proceed, Side
from authplane.dataplane.filters.registry import (
    FilterConfig,
    FilterType,
    Packed,
    Registry,
    Scope,
    State,
    Structured,
    Trust,
)
from authplane.xds.bootstrap.credentials import TlsFiles

BOTH: Final = frozenset(Side)


@dataclass(frozen=True)
class Built:
    """A filter that shows what it was built from."""

    config: "Config"
    override: object | None
    counter: list[int] = field(default_factory=list, compare=False, hash=False)

    def run(self, call: Call) -> Flow:
        yield from ()
        return Proceed(metadata=call.metadata)


@dataclass(frozen=True)
class Config:
    """A configuration that is only known by its bytes."""

    type_name: str
    value: bytes | str
    side: Side = Side.SERVER

    def build(self, state: State, override: object | None) -> Built:
        return Built(self, override, state.kept.of(self, list))


@dataclass(frozen=True)
class OverrideConfig:
    """An override that is only known by its bytes."""

    value: bytes


def reading(message: type[Message]) -> Any:
    def parse(packed: Packed, scope: Scope) -> FilterConfig | tuple[Problem, ...]:
        try:
            message.FromString(packed.value)
        except DecodeError:
            return (Problem(("inside",), "Unreadable", "cannot be read"),)
        return Config(packed.type_name, packed.value, scope.side)

    return parse


def parse_structured(structured: Structured, scope: Scope) -> FilterConfig | tuple[Problem, ...]:
    return Config(structured.type_name, structured.json, scope.side)


def parse_override(packed: Packed, _: Scope) -> Hashable | tuple[Problem, ...]:
    if packed.value == b"\xff":
        return (Problem(("inside",), "Unreadable", "cannot be read"),)
    return OverrideConfig(packed.value)


def kind(message: type[Message], override: type[Message] | None = None, **kwargs: Any) -> FilterType:
    return FilterType(
        type_urls=(f"type.googleapis.com/{message.DESCRIPTOR.full_name}",),
        override_urls=() if override is None else (override.DESCRIPTOR.full_name,),
        parse=reading(message),
        parse_override=None if override is None else parse_override,
        **kwargs,
    )


ROUTER: Final = kind(router_pb2.Router, sides=BOTH, terminal=True)
FAULT: Final = kind(fault_pb2.HTTPFault, fault_pb2.HTTPFault, sides=frozenset({Side.CLIENT}))
RBAC: Final = kind(rbac_pb2.RBAC, rbac_pb2.RBACPerRoute, sides=frozenset({Side.SERVER}))
CUSTOM: Final = FilterType(
    type_urls=("example.com/test.Custom",),
    sides=BOTH,
    parse=lambda packed, scope: Config(packed.type_name, packed.value, scope.side),
    parse_structured=parse_structured,
)
REGISTRY: Final = Registry.of(ROUTER, FAULT, RBAC, CUSTOM)
TRUST: Final = Trust(certificate_providers={"own": TlsFiles()})
CLIENT: Final = Scope(side=Side.CLIENT, trust=TRUST, registry=REGISTRY)
SERVER: Final = Scope(side=Side.SERVER, trust=TRUST, registry=REGISTRY)
