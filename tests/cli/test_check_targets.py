"""Checks of gRPC servers say in their metadata what they are about, in both engines of the policy server."""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.check_requests import check
from tests.support.authservers.server_process import Server

DOCUMENTS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {unprotectedBackends: Allow}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: open}
spec: {type: GRPC, grpc: {port: 50051}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shut}
spec: {type: GRPC, grpc: {port: 50052}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: shut}
spec: {targetRefs: [{kind: Backend, name: shut}], rules: []}
"""
OPEN, SHUT = "Backend/default/open", "Backend/default/shut"
CASES: dict[str, tuple[tuple[str, ...], dict[str, str], int]] = {
    "metadata names the target": ((OPEN,), {}, 200),
    "another one": ((SHUT,), {}, 403),
    "nothing does": ((), {}, 503),
    "two targets are none": ((OPEN, OPEN), {}, 503),
    "what is no target": (("open",), {}, 503),
    "one that is not there": (("Backend/default/other",), {}, 503),
    "the context goes before it": ((OPEN,), {"authplane.target": SHUT}, 403),
    "a Gateway that is not there besides": ((OPEN,), {"authplane.gateway": "Gateway/default/none"}, 503),
}


async def status(server: Server, targets: tuple[str, ...], context: dict[str, str]) -> int:
    asked = check("/shop.Cart/Add", headers={"user-agent": "test"}, context=context)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
        metadata = [("authplane-target", each) for each in targets]
        got = pb.CheckResponse.FromString(await call(asked.SerializeToString(), metadata=metadata, timeout=5))
    if got.HasField("denied_response"):
        return int(got.denied_response.status.code)
    return int(got.error_response.status.code) if got.HasField("error_response") else 200


@pytest.mark.real
@pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])
async def test_the_metadata_of_a_check_names_its_target_and_never_against_its_context(
    tmp_path: Path, engine: str
) -> None:
    folder = tmp_path / "resources"
    folder.mkdir()
    (folder / "all.yaml").write_text(DOCUMENTS, encoding="utf-8")
    server = Server()
    async with server.running("policy", str(folder), "--engine", engine):
        got = {name: await status(server, targets, context) for name, (targets, context, _) in CASES.items()}
    assert got == {name: wanted for name, (_, _, wanted) in CASES.items()}
