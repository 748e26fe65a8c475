"""The contract of `authplane.core.memo`, through the whole pipeline: documents, policies, graph, placement, bytes.

One document changes. Whatever does not depend on it is the same object afterwards, and nothing is made anew for it: a
copy anywhere on the way, or a new object where an equal one is known, fails here. That results with memory equal those
without it, whatever changes, is for ``test_incremental.py`` and ``test_incremental_gateways.py``.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest
from tests.controlplane.serving.test_incremental import INCLUDING
from tests.controlplane.serving.test_incremental import VARIANTS as PROXIES
from tests.controlplane.serving.test_incremental_gateways import KEYS
from tests.controlplane.serving.test_incremental_gateways import VARIANTS as GATEWAYS
from tests.support.gateways.mcp_gateway import gateway

from authplane.controlplane.graph.model.port_model import SecurePort
from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.render.resource_parts import Bodies
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.core.memo import Generations, Same
from authplane.sources.document_versions import Library
from authplane.xds.server.served_types import TypeUrl

OF_GATEWAYS: Final = (
    "configuration",
    "gateway",
    "shop",
    "till",
    "service",
    "to-shop",
    "to-till",
    "policy-shop",
    "cart",
)
MANY: Final = range(20)
"""So many routes are not rendered together."""
PLAIN: Final = f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: many}}
spec:
  virtualhost: {{fqdn: many.example}}
  routes: [{", ".join(f"{{conditions: [{{prefix: /{each}}}], services: [{{name: echo, port: 80}}]}}" for each in MANY)}]
"""
ROUTED: Final = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: many}}
spec:
  parentRefs: [{{name: edge}}]
  rules:
  - matches: [{", ".join(f"{{path: {{value: /{each}}}}}" for each in MANY)}]
    backendRefs: [{{name: shop, port: 80}}]
"""
FILES: Final[Mapping[str, str]] = {
    **{name: texts[0] for name, texts in PROXIES.items()},
    **{name: GATEWAYS[name][0] for name in OF_GATEWAYS},
    "gateway": gateway(9080, 9443),
    "web": INCLUDING,
    "policy-more": GATEWAYS["policy-more"][1],
    "many-proxied": PLAIN,
    "many-routed": ROUTED,
}


class Entry(NamedTuple):
    """Something that was made: in which memory it is, and what it is called there."""

    memory: str
    name: str
    made: object


def remembered(generation: Generation) -> list[Entry]:
    """Find all that a generation leaves to the next one, in whatever memory it is."""
    roots = (generation.memory, generation.compiler, generation.told, *generation.snapshots.carried().values())
    return [
        Entry(where, entry_word(memory, key, made), made)
        for root in roots
        for where, memory in memories(root)
        for key, made in memory.now.items()
    ]


def memories(value: object, name: str = "") -> Iterator[tuple[str, Generations[Any, Any]]]:
    """Look for memories in the attributes of what has some, and in what those remember."""
    if isinstance(value, Generations):
        yield name, value
        for entry in value.now.values():
            yield from memories(getattr(entry, "made", None))
    attributes = dict(vars(value)) if hasattr(value, "__dict__") else {}
    if is_dataclass(value) and type(value).__module__.startswith("authplane.controlplane."):
        attributes |= {each.name: getattr(value, each.name) for each in fields(value)}
    for attribute, below in attributes.items():
        if isinstance(below, Generations) or type(below).__name__.endswith("Memory"):
            yield from memories(below, attribute.lstrip("_"))


def entry_word(memory: Generations[Any, Any], key: object, entry: Any) -> str:
    if isinstance(memory, Bodies):
        # Without the digest of filters, which is in the names of route tables.
        return re.sub(r"#[0-9a-f]{16}$", "", f"{entry.part.kind} {entry.name}".strip())
    if isinstance(key, tuple) and type(key) is tuple:
        return " ".join(map(str, key))
    return "hosts" if isinstance(key, Same) else str(getattr(key, "service", key))


def library(**changes: str) -> Library:
    made = Library()
    for file, text in {**FILES, **changes}.items():
        made.changed(f"{file}.yaml", text.encode())
    return made


def changed(file: str, text: str) -> tuple[Generation, Generation, dict[str, list[str]]]:
    """Change a file; return the generations before and after, and what was made for the second."""
    files = library()
    before = build_generation(files.current(), keys=KEYS[0])
    before.status(NoProxy())
    known = remembered(before)
    files.changed(f"{file}.yaml", text.encode())
    after = build_generation(files.current(), before, keys=KEYS[0])
    after.status(NoProxy())
    old, made = {id(each.made) for each in known}, defaultdict[str, list[str]](list)
    for entry in remembered(after):
        if id(entry.made) not in old:
            made[entry.memory].append(entry.name)
    return before, after, {memory: sorted(names) for memory, names in made.items()}


SECURE: Final = "gateway/9443/default/edge/secure"
NOTHING: Final[Mapping[str, list[str]]] = {}
LISTENERS: Final[Mapping[str, list[str]]] = {
    "whole": ["* False", "* True"],
    "hosts": ["*", "*"],
    "ports": ["gateway/9080", "gateway/9443"],
    "chains": [SECURE],
    "memo": ["hosts", "hosts"],
}
"""What a changed route of both listeners comes to; their other routes are not made again."""


def parts_of(route: str) -> list[str]:
    """Return what is rendered for a changed route of both listeners."""
    tables = ("routes gateway/9080", f"routes {SECURE}")
    route_parts = [f"route {route}", "no route"]
    return sorted([*route_parts, *route_parts, *tables, f"chain {SECURE}"])


def judged(policy_name: str, backend: str) -> dict[str, list[str]]:
    """Return what a changed policy before a Backend comes to."""
    ref = f"AccessPolicy/default/{policy_name}"
    ways = [f"Backend/default/{backend} Gateway/default/edge/{section}" for section in ("plain", "secure")]
    return {
        "drafts": [ref],
        "made": [ref],
        "settled": [ref],
        "attachments": [f"Backend/default/{backend}"],
        "told": [f"{ref} Backend/default/{backend}"],
        "placings": ways,
        "routes": [f"default/{backend}"],
    }


class Case(NamedTuple):
    file: str
    old: str
    new: str
    made: Mapping[str, list[str]]
    copies: tuple[str, ...] = ()
    """What is made together with what changed, and is equal: it depends on the same documents."""


CASES: Final = {
    "a comment": Case("to-till", "apiVersion", "# again\napiVersion", NOTHING),
    "a comment in a policy": Case("policy-shop", "apiVersion", "# again\napiVersion", NOTHING),
    "a Secret written again": Case("tls", "apiVersion", "# again\napiVersion", NOTHING),
    "a host without TLS": Case(
        "plain",
        "port: 80}",
        "port: 80, weight: 2}",
        {
            "roots": ["default/plain"],
            "ports": ["ingress_http"],
            "memo": ["hosts"],
            "bodies": ["routes ingress_http", "virtual host plain.example"],
        },
    ),
    "what a host behind TLS includes": Case(
        "app",
        "disabled: true",
        "context: {a: b}",
        {
            "roots": ["default/web"],
            "chains": ["https/web.example"],
            "ports": ["ingress_https"],
            "memo": ["hosts"],
            "bodies": ["chain https/web.example", "routes https/web.example"],
        },
        copies=("route https/web.example default/web#/",),
    ),
    "endpoints": Case(
        "echo",
        "10.0.0.1",
        "10.0.0.9",
        {
            "clusters": ["default/echo"],
            "bodies": ["cluster service/default/echo/80", "endpoints service/default/echo/80"],
        },
    ),
    "a gRPC server": Case(
        "cart",
        "50051",
        "50052",
        {
            "backends": ["Backend/default/cart"],
            "grpc_servers": ["Backend/default/cart"],
            "bodies": ["grpc grpc/default/cart/0.0.0.0:50052"],
        },
    ),
    "a route": Case(
        "to-till",
        "/till",
        "/checkout",
        {**LISTENERS, "routes": ["default/till"], "bodies": parts_of("default/till#^/checkout")},
    ),
    "a policy": Case(
        "policy-shop", "add", "sub", {**LISTENERS, **judged("shop", "shop"), "bodies": parts_of("default/shop#^/shop")}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_nothing_is_made_anew_that_does_not_depend_on_the_change(case: Case) -> None:
    assert case.old in FILES[case.file]
    _, _, made = changed(case.file, FILES[case.file].replace(case.old, case.new))
    assert made == case.made


# --- Equal is the same object


def promised(generation: Generation) -> dict[str, object]:
    """Return what one stage gives to the next and promises to give again, by name."""
    graph, resources, policies = generation.built.graph, generation.loaded.resources, generation.compiled.policies
    found: dict[str, object] = {"settings": policies.settings}
    tables = {each.name: getattr(resources, each.name) for each in fields(resources)}
    for kind, table in tables.items():
        if isinstance(table, MappingProxyType) and kind != "stored_ancestors":
            found |= {f"{kind} {name}": value for name, value in table.items()}
    found |= {f"attachment {aim}": each for aim, each in policies.attachments.items()}
    found |= {f"policy {policy.ref}": policy for each in policies.attachments.values() for policy in each.policies}
    found |= {f"cluster {each.name}": each for each in graph.clusters}
    found |= {f"certificate {each.name}": each for each in graph.certificates}
    found |= {f"server {each.ref}": each for each in graph.grpc_servers}
    for port in graph.ports:
        found[f"port {port.where.port}"] = port
        found |= {f"chain {each.name}": each for each in (port.chains if isinstance(port, SecurePort) else ())}
        for table in port.tables:
            found |= {f"host {table.name} {each.name}": each for each in table.entries}
            found |= {f"route {table.name} {route.name}": route for host in table.hosts for route in host.routes}
    for url in TypeUrl:
        found[f"collection {url.name}"] = generation.snapshot.collection(url)
        found |= {f"{url.name} {name}": each for name, each in generation.snapshot.resources(url).items()}
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_whatever_is_equal_after_a_change_is_the_same_object(case: Case) -> None:
    before, after, _ = changed(case.file, FILES[case.file].replace(case.old, case.new))
    known = promised(before)
    copies = [
        name for name, value in promised(after).items() if value == known.get(name) and value is not known.get(name)
    ]
    assert tuple(copies) == case.copies
    assert len(known) > 60


def test_a_copy_on_the_way_is_noticed() -> None:
    files = library()
    before = build_generation(files.current(), keys=KEYS[0])
    known = {id(each.made) for each in remembered(before)}
    loaded = files.current()
    copies = {name: replace(each) for name, each in loaded.resources.access_policies.items()}
    resources = replace(loaded.resources, access_policies=MappingProxyType(copies))
    after = build_generation(replace(loaded, resources=resources), before, keys=KEYS[0])
    assert after.snapshot == before.snapshot
    drafts = [each.name for each in remembered(after) if each.memory == "drafts" and id(each.made) not in known]
    assert drafts == ["AccessPolicy/default/more", "AccessPolicy/default/shop"]
