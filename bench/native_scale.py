"""A thousand backends with a policy each, decided in Envoy: what rendering takes, and what one changed policy does."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import httpx2
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import gateway, policy, route
from tests.support.issuers.minting import ISSUER, signer
from tests.support.mcp.mcp_checks import call_body
from tests.support.ports import free_port

from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.sources.document_versions import Library
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot, change
from bench.native_site import HEADERS, Ports, backend, beside, configuration, running

_SIZE: Final = 1_000
_ROUNDS: Final = 5
_KEYS: Final = {ISSUER: json.dumps({"keys": [signer("ES256").jwk()]})}
_OIDC: Final = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}"
_PAUSE: Final = 0.002


async def main(core: int) -> None:
    """Render, change one policy and render again; then the same with the programs and a request that tells."""
    library = Library()
    _fill(library, _texts(Ports(1, 2, 3), 4))
    begun = time.process_time()
    generation = build_generation(library.current(), keys=_KEYS)
    sizes = _sizes(generation.snapshot)
    built = time.process_time()
    print(
        f"  {_SIZE} policies on {_SIZE} backends: {built - begun:.2f} s of processor time to read, compile, place and "
        f"render, {sum(sizes.values()) / 1e6:.1f} MB for Envoy: {_words(sizes)}",
        flush=True,
    )
    _change(library, generation)
    await _enforced(core)


def _texts(ports: Ports, upstream: int) -> dict[str, str]:
    """Return the documents by file: half of the policies are for workloads, half for those who have tokens."""
    common = [
        configuration("unix:/nowhere.sock"), gateway(ports.plain, ports.secure), tls_secret("tls", server("localhost")),
        ca_secret("ca"), service("mcp", upstream),
    ]  # fmt: skip
    found = {"common": "\n---\n".join(common)}
    for number in range(_SIZE):
        name = f"shop-{number}"
        found[name] = "\n---\n".join((backend(name, {}), route(name, {name: 1}), _policy(number)))
    return found


def _policy(number: int, tool: str = "add") -> str:
    name, tools = f"shop-{number}", f"[{{type: InlineTools, tools: [{tool}, subtract]}}]"
    if number == 0:
        return policy(f"[{{authorization: {tools}}}]", name)
    workload = f"{{type: SPIFFE, spiffe: 'spiffe://cluster.local/ns/default/sa/agent-{number}'}}"
    return policy(f"[{{source: {_OIDC if number % 2 else workload}, authorization: {tools}}}]", name)


def _fill(library: Library, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        library.changed(f"{name}.yaml", text.encode())


def _change(library: Library, generation: Generation) -> None:
    """Change the tools of one policy, and print what follows."""
    taken, sent = [], {}
    for turn in range(_ROUNDS):
        texts = backend("shop-7", {}), route("shop-7", {"shop-7": 1})
        library.changed("shop-7.yaml", "\n---\n".join((*texts, _policy(7, f"tool-{turn}"))).encode())
        before, begun = generation, time.process_time()
        generation = build_generation(library.current(), before, keys=_KEYS)
        sent = _pushed(before.snapshot, generation.snapshot)
        taken.append(time.process_time() - begun)
    print(
        f"  one policy changed: {median(taken) * 1000:.0f} ms of processor time; pushed to an Envoy: "
        f"{_words(sent) or 'nothing'}",
        flush=True,
    )


def _sizes(snapshot: Snapshot) -> dict[str, int]:
    found = {each.name.lower(): snapshot.resources(each) for each in TypeUrl}
    return {name: sum(len(each.body) for each in resources.values()) for name, resources in found.items() if resources}


def _pushed(before: Snapshot, after: Snapshot) -> dict[str, int]:
    found = {}
    for each in TypeUrl:
        resources = after.resources(each)
        updated = change(before.resources(each), resources).updated
        found[each.name.lower()] = sum(len(resources[name].body) for name in updated)
    return {name: size for name, size in found.items() if size}


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size / 1000:.1f} kB" for name, size in sizes.items())


async def _enforced(core: int) -> None:
    """Change who may call what in a folder, and wait until Envoy obeys."""
    ports = Ports(free_port(), free_port(), free_port())
    with TemporaryDirectory() as root:
        folder = Path(root) / "many"
        folder.mkdir()
        async with beside(core, Path(root), ()) as upstream:
            for name, text in _texts(ports, upstream).items():
                (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
            async with running(folder, ports), httpx2.AsyncClient(timeout=5) as http:
                url = f"http://127.0.0.1:{ports.plain}/shop-0"
                await _until(http, url, 200, limit=60)
                taken = [await _turn(folder, http, url, turn) for turn in range(2 * _ROUNDS)]
    print(
        f"  from the changed file to Envoy's changed answer: {median(taken) * 1000:.0f} ms, at most "
        f"{max(taken) * 1000:.0f} ms; 100 ms of each are the holdoff",
        flush=True,
    )


async def _turn(folder: Path, http: httpx2.AsyncClient, url: str, turn: int) -> float:
    """Take a tool away, or give it back."""
    allowed = bool(turn % 2)
    written = _policy(0, "add" if allowed else "nothing")
    draft = folder / ".shop-0.new"
    texts = (backend("shop-0", {}), route("shop-0", {"shop-0": 1}), written)
    await asyncio.to_thread(draft.write_text, "\n---\n".join(texts), encoding="utf-8")
    begun = time.perf_counter()
    draft.replace(folder / "shop-0.yaml")
    await _until(http, url, 200 if allowed else 403, limit=30)
    return time.perf_counter() - begun


async def _until(http: httpx2.AsyncClient, url: str, status: int, *, limit: float) -> None:
    async with asyncio.timeout(limit):
        while True:
            try:
                answer = await http.post(url, content=call_body("add", a=1), headers=HEADERS)
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.status_code == status:
                return
            await asyncio.sleep(_PAUSE)
