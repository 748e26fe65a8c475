"""Backends of both types as documents."""

from typing import NamedTuple

import pytest

from authplane.resources.kinds.agentic import BackendSpec, GrpcBackend, GrpcTls
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library


class Case(NamedTuple):
    spec: str
    problems: list[str]
    kind: str = "Backend"


MCP, GRPC = "mcp: {serviceName: a, port: 1}", "grpc: {port: 1}"
CASES = {
    "a server": Case(f"type: GRPC, {GRPC}", []),
    "nothing of its own": Case("type: GRPC", ["spec.grpc: 'grpc' is required for type GRPC. Add it. [FieldRequired]"]),
    "nothing at all": Case("", ["spec.mcp: 'mcp' is required for type MCP. Add it. [FieldRequired]"]),
    "the other member": Case(
        f"type: GRPC, {MCP}",
        [
            "spec.grpc: 'grpc' is required for type GRPC. Add it. [FieldRequired]",
            "spec.mcp: A Backend of type GRPC cannot have 'mcp'. Remove it. [FieldInvalid]",
        ],
    ),
    "both members": Case(
        f"type: GRPC, {MCP}, {GRPC}", ["spec.mcp: A Backend of type GRPC cannot have 'mcp'. Remove it. [FieldInvalid]"]
    ),
    "a member that the type does not have": Case(
        f"{MCP}, {GRPC}", ["spec.grpc: A Backend of type MCP cannot have 'grpc'. Remove it. [FieldInvalid]"]
    ),
    "a name for an address": Case(
        "type: GRPC, grpc: {address: localhost, port: 1}",
        ["spec.grpc.address: 'localhost' is not an IP address. Use one such as 127.0.0.1. [FieldInvalid]"],
    ),
    "TLS that was cut off": Case(
        "type: GRPC, grpc: {port: 1, tls: }",
        ["spec.grpc.tls: 'tls' has no value. Set a value, or remove the line. [FieldInvalid]"],
    ),
    "TLS without a certificate": Case(
        "type: GRPC, grpc: {port: 1, tls: {clientCaProvider: a}}",
        ["spec.grpc.tls.certificateProvider: 'certificateProvider' is required. Add it. [FieldRequired]"],
    ),
    "the earlier name": Case(
        f"type: GRPC, {GRPC}",
        ["spec.type: An XBackend can only be an MCP server. For other types, use Backend. [FieldInvalid]"],
        kind="XBackend",
    ),
}


def load(spec: str, kind: str = "Backend") -> Loaded:
    version = "v1alpha1" if kind == "Backend" else "v0alpha0"
    library = Library()
    text = f"apiVersion: agentic.networking.x-k8s.io/{version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"
    library.changed("a.yaml", text.encode())
    return library.current()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_backend_has_what_its_type_names_and_nothing_else(case: Case) -> None:
    loaded = load(case.spec, case.kind)
    assert [str(each.problem) for each in loaded.findings] == case.problems
    assert bool(loaded.resources.broken) == bool(case.problems)


def test_everything_that_a_server_may_say_is_read() -> None:
    [made] = load(
        "type: GRPC, grpc: {address: '::', port: 1, tls: {certificateProvider: a, clientCaProvider: b}, "
        "policyServerCaProvider: c}"
    ).resources.backends.values()
    assert made.spec == BackendSpec(
        type="GRPC",
        grpc=GrpcBackend(
            address="::",
            port=1,
            tls=GrpcTls(certificate_provider="a", client_ca_provider="b"),
            policy_server_ca_provider="c",
        ),
    )
