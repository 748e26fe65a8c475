"""What grpcio's own xDS client refuses, we refuse; where we differ, docs/reference/grpc-differences.md says so."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.message import Message
from tests.dataplane.config.cases import CLIENT_LISTENERS, CLUSTERS, ENDPOINTS, ROUTES, SERVER_LISTENERS, Case
from tests.support.dataplane.cluster_messages import eds_cluster
from tests.support.dataplane.listener_messages import api_listener, manager, rds
from tests.support.dataplane.plain_filters import CLIENT, REGISTRY, SERVER
from tests.support.dataplane.route_messages import routes_to
from tests.support.grpc.native_client import native_verdicts

from authplane.dataplane.config.read.decode_resource import (
    decode_cluster,
    decode_endpoints,
    decode_listener,
    decode_routes,
)
from authplane.dataplane.filters.registry import Registry
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.xds.client.watched_types import Invalid

LISTENER: Final = "envoy.config.listener.v3.Listener"
ROUTE: Final = "envoy.config.route.v3.RouteConfiguration"
CLUSTER: Final = "envoy.config.cluster.v3.Cluster"
ENDPOINT: Final = "envoy.config.endpoint.v3.ClusterLoadAssignment"
TABLES: Final[Mapping[str, Mapping[str, Case]]] = {
    "client listener": CLIENT_LISTENERS,
    "server listener": SERVER_LISTENERS,
    "routes": ROUTES,
    "cluster": CLUSTERS,
    "endpoints": ENDPOINTS,
}
DECODERS: Final[Mapping[str, tuple[Callable[..., Any], Any]]] = {
    "client listener": (decode_listener, CLIENT),
    "server listener": (decode_listener, SERVER),
    "routes": (decode_routes, CLIENT),
    "cluster": (decode_cluster, CLIENT),
    "endpoints": (decode_endpoints, CLIENT),
}
CASES: Final = [(kind, name) for kind, table in TABLES.items() for name in table]


def named(resource: Message, field: str, name: str) -> bytes:
    copy = type(resource)()
    copy.CopyFrom(resource)
    setattr(copy, field, name)
    return copy.SerializeToString()


class Script:
    """Resources for grpcio: each case with what leads to it."""

    def __init__(self) -> None:
        self.resources: dict[tuple[str, str], bytes] = {}
        self.targets: list[str] = []
        self.addresses: list[str] = []
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, kind: str, case_name: str, resource: Message) -> None:
        name = f"case-{len(self.keys)}"
        match kind:
            case "server listener":
                # Every address of 127.0.0.0/8 is this machine; the Listener is for another, and nothing is bound.
                name = f"127.7.{len(self.addresses) // 250}.{len(self.addresses) % 250 + 1}:50051"
                self.addresses.append(name)
                self._put(kind, case_name, (LISTENER, name), named(resource, "name", name))
            case "client listener":
                self.targets.append(name)
                self._put(kind, case_name, (LISTENER, name), named(resource, "name", name))
            case "routes":
                self._lead(name, manager(rds=rds(name)))
                self._put(kind, case_name, (ROUTE, name), named(resource, "name", name))
            case "cluster":
                self._lead(name, manager(route_config=routes_to(name)))
                self._put(kind, case_name, (CLUSTER, name), named(resource, "name", name))
            case _:
                self._lead(name, manager(route_config=routes_to(name)))
                self.resources[CLUSTER, name] = eds_cluster(name).SerializeToString()
                self._put(kind, case_name, (ENDPOINT, name), named(resource, "cluster_name", name))

    def _lead(self, name: str, held: Any) -> None:
        self.targets.append(name)
        self.resources[LISTENER, name] = api_listener(held, name).SerializeToString()

    def _put(self, kind: str, case_name: str, key: tuple[str, str], data: bytes) -> None:
        self.keys[kind, case_name] = key
        self.resources[key] = data


@pytest.fixture(scope="module")
def native() -> Mapping[tuple[str, str], str]:
    script = Script()
    for kind, name in CASES:
        script.add(kind, name, TABLES[kind][name].resource)
    wanted = set(script.keys.values())
    verdicts = asyncio.run(
        native_verdicts(script.resources, wanted, targets=script.targets, addresses=script.addresses)
    )
    return {case: verdicts[key] for case, key in script.keys.items()}


@pytest.mark.real
@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}: {name}" for kind, name in CASES])
def test_grpcio_takes_what_the_table_says(native: Mapping[tuple[str, str], str], kind: str, name: str) -> None:
    assert (native[kind, name] == "") == TABLES[kind][name].taken, native[kind, name]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}: {name}" for kind, name in CASES])
@pytest.mark.parametrize("registry", [REGISTRY, standard_registry()], ids=["the tests'", "the program's"])
def test_we_take_what_the_table_says(kind: str, name: str, registry: Registry) -> None:
    case = TABLES[kind][name]
    decode, scope = DECODERS[kind]
    got = decode(case.resource.SerializeToString(), replace(scope, registry=registry))
    refused = [str(problem) for problem in got.problems] if isinstance(got, Invalid) else []
    assert (not refused) == (case.taken if case.ours is None else case.ours), refused


def test_every_difference_is_documented_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "grpc-differences.md").read_text(encoding="utf-8")
    _, accepted, refused = re.split(r"^## (?:Accepted|Rejected) by authplane.*$", page, flags=re.MULTILINE)
    row = re.compile(r"^\| ([a-z ]+) \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
    listed = {
        True: {found for found in row.findall(accepted) if found[0] in TABLES},
        False: {found for found in row.findall(refused.partition("\n## ")[0]) if found[0] in TABLES},
    }
    want = {ours: {(kind, name) for kind, name in CASES if TABLES[kind][name].ours is ours} for ours in (True, False)}
    assert listed == want
