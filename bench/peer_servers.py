"""Runs the authorization services of other projects, with the policy that authplane is measured with."""

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.ports import free_port

from authplane.devkit.identities.signing import SigningKey
from authplane.devkit.local.dev_folder import read_signing_key
from authplane.devkit.local.dev_issuer import RunningIssuer
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.servers.listen import TcpAddress, UnixAddress
from authplane.runtime.wait_until_listening import reachable
from bench.native_readers import upstream_cluster, upstream_route
from bench.native_site import TYPES, Ports, Site, envoy, listener
from bench.processes import started_here

_START_LIMIT: Final = 60
_TRIVIAL: Final = """
package envoy.authz

default allow := false

allow if contains(input.attributes.request.http.path, "allow")
"""
_EQUAL: Final = """
package envoy.authz

default allow := false

allow if {
    input.parsed_body.method == "tools/call"
    startswith(input.parsed_body.params.name, "read_")
    claims.group == "admin"
}

claims := payload if {
    header := input.attributes.request.http.headers.authorization
    startswith(header, "Bearer ")
    token := substring(header, 7, -1)
    [valid, _, payload] := io.jwt.decode_verify(token, {"cert": keys, "iss": "ISSUER", "aud": "shop"})
    valid
}

keys := `KEYS`
"""
"""The policy "claims" of `bench.native_site` in Rego: issuer, audience, claim and the tool's name."""


class Opa(NamedTuple):
    """An instance of OPA-Envoy."""

    program: Path
    folder: Path
    """Where its files are."""
    policy: str
    """In Rego."""
    remembers_tokens: bool = False
    """True sets OPA's cache for verified tokens, which is off by default."""


def trivial_policy() -> str:
    """Return a policy in Rego that decides as our testserver does."""
    return _TRIVIAL


def equal_policy(issuer: RunningIssuer) -> str:
    """Return a policy in Rego that decides as ours does."""
    keys = SigningKey.of(read_signing_key(issuer.folder)).key_set().decode()
    return _EQUAL.replace("ISSUER", issuer.url).replace("KEYS", keys)


@asynccontextmanager
async def opa_envoy(opa: Opa, address: TcpAddress | UnixAddress) -> AsyncGenerator[frozenset[int]]:
    """Run OPA-Envoy at an address, without logs of decisions; yields its processes."""
    opa.folder.mkdir()
    (opa.folder / "policy.rego").write_text(opa.policy, encoding="utf-8")
    where = f"unix://{address.path}" if isinstance(address, UnixAddress) else str(address)
    config: dict[str, Any] = {"plugins": {"envoy_ext_authz_grpc": {"addr": where, "path": "envoy/authz/allow"}}}
    if opa.remembers_tokens:
        config["caching"] = {"inter_query_builtin_value_cache": {"named": {"io_jwt": {"max_num_entries": 1000}}}}
    (opa.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    argv = [
        str(opa.program), "run", "--server", "--addr", f"unix://{opa.folder}/api.sock", "--skip-version-check",
        "--log-level", "error", "--config-file", f"{opa.folder}/config.json", f"{opa.folder}/policy.rego",
    ]  # fmt: skip
    async with _served(argv, address) as processes:
        yield processes


@asynccontextmanager
async def contour_authserver(program: Path, address: TcpAddress) -> AsyncGenerator[frozenset[int]]:
    """Run contour-authserver's testserver; yields its processes. It always logs each check."""
    silent = [str(shutil.which("sh")), "-c", 'exec "$@" >/dev/null 2>&1', "sh"]
    async with _served([*silent, str(program), "testserver", "--address", str(address)], address) as processes:
        yield processes


@asynccontextmanager
async def gateway_with_callout(folder: Path, upstream: int, service: str, binary: Path) -> AsyncGenerator[Site]:
    """Run an Envoy that sends every request with its body to the authorization service at a Unix socket.

    It has no other filter and no access log: nothing is cheaper with such a service. ``deciding`` is left empty.
    """
    ports = Ports(free_port(), 0, 0)
    called = f"{TYPES}.filters.http.ext_authz.v3.ExtAuthz"
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "called",
        "http_filters": [
            {"name": "ext_authz", "typed_config": {
                "@type": called, "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": "service"}, "timeout": "5s"},
                "with_request_body": {"max_request_bytes": 65536, "pack_as_bytes": True},
            }},
            {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}},
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [upstream_route("/")]}]},
    }  # fmt: skip
    asked = upstream_cluster(0) | {"name": "service", "load_assignment": {
        "cluster_name": "service",
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": service}}}}]}],
    }}  # fmt: skip
    clusters = [upstream_cluster(upstream), asked]
    config = {"static_resources": {"listeners": [listener(ports.plain, manager)], "clusters": clusters}}
    before = started_here()
    async with envoy(json.dumps(config), folder / f"{Path(service).name}.json", binary=binary):
        await reachable(TcpAddress(host="127.0.0.1", port=ports.plain), limit=_START_LIMIT)
        yield Site(ports, started_here() - before, frozenset())


@asynccontextmanager
async def _served(argv: list[str], address: TcpAddress | UnixAddress) -> AsyncGenerator[frozenset[int]]:
    before = started_here()
    async with run_process(argv, sink=_tell):
        await reachable(address, limit=_START_LIMIT)
        yield started_here() - before


async def _tell(line: Line) -> None:
    if '"level":"warning"' not in line.text:
        print(f"  {line.text}", flush=True)
