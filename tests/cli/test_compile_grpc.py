"""`authplane compile` shows what gRPC servers are told."""

from pathlib import Path

from click.testing import CliRunner

from authplane.cli.main import build_app

DOCUMENTS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {unprotectedBackends: Allow}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: cart}
spec:
  type: GRPC
  grpc: {port: 50051, tls: {certificateProvider: a, clientCaProvider: a}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {name: cart}
spec:
  targetRefs: [{kind: Backend, name: cart}]
  rules:
  - source: {type: SPIFFE, spiffe: "spiffe://example.org/web"}
    authorization: [{type: Inline, paths: [/shop.Cart/Get]}]
  - authorization: [{type: Inline, paths: ["/grpc.health.v1.Health/*"]}]
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: open}
spec: {type: GRPC, grpc: {port: 50052}}
"""


def test_every_server_is_shown_with_who_judges_its_calls(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(DOCUMENTS, encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["compile", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    checked = "checked by ipv4:127.0.0.1:9443 within 5 s, fails closed"
    assert result.stdout.splitlines() == [
        "gRPC server Backend/default/cart, Listener grpc/default/cart/0.0.0.0:50051, requires client certificates",
        f"  /shop.Cart/Get  for spiffe://example.org/web, {checked}; other callers denied",
        f"  /grpc.health.v1.Health/*  {checked}",
        "  every other call  denied",
        "  authplane.grpc servers decide native rules themselves: see authplane explain",
        "gRPC server Backend/default/open, Listener grpc/default/open/0.0.0.0:50052",
        "  every call  unprotected",
    ]
