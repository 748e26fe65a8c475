"""Other keys of the same issuers make the same generation as building all of it again."""

from pathlib import Path
from typing import Final

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, configuration, gateway, policy, route
from tests.support.issuers.keyrings import keys
from tests.support.issuers.minting import Signer, signer

from authplane.controlplane.serving.changed_keys import rekeyed
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.core.envoy_releases import Release
from authplane.policy.identity.tokens.export_keys import render_jwks
from authplane.policy.identity.tokens.verify import Demands
from authplane.sources.document_versions import Library, Loaded
from authplane.xds.server.served_types import TypeUrl

ISSUER: Final = "https://issuer.example"
OLD, NEW = signer("ES256", "old"), signer("ES256", "new")
SOURCE: Final = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}"
RULES: Final = f"[{{source: {SOURCE}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"
EDITIONS: Final = (Release(1, 36), Release(1, 39), Release(1, 40), None)


def library() -> Library:
    documents = [
        configuration(Path("/run/authplane"), [ISSUER], ""),
        gateway(10080, 10443),
        tls_secret("tls", server("localhost")),
        ca_secret("ca"),
        backend("shop"),
        service("shop", 10081),
        route("shop", {"shop": 1}),
        policy(RULES),
    ]
    made = Library()
    made.changed("all.yaml", "\n---\n".join(documents).encode())
    return made


def told(*signers: Signer) -> dict[str, str]:
    text = render_jwks(keys(*(each.jwk() for each in signers)), Demands())
    assert isinstance(text, str)
    return {ISSUER: text}


def bodies(made: Generation) -> list[object]:
    return [made.edition(envoy).resources(each) for envoy in EDITIONS for each in TypeUrl]


@pytest.fixture
def loaded() -> Loaded:
    return library().current()


def test_every_proxy_gets_what_it_would_if_all_were_built_again(loaded: Loaded) -> None:
    before = build_generation(loaded, keys=told(OLD))
    bodies(before)
    made = rekeyed(before, loaded, told(NEW, OLD))
    assert made is not None
    want = build_generation(loaded, keys=told(NEW, OLD))
    assert bodies(made) == bodies(want) != bodies(before)
    assert (made.built.graph.keys, made.findings) == (want.built.graph.keys, want.findings)
    assert made.compiled is before.compiled


def test_what_else_is_different_is_built(loaded: Loaded) -> None:
    before = build_generation(loaded, keys=told(OLD))
    assert rekeyed(None, loaded, told(OLD)) is None
    assert rekeyed(before, library().current(), told(NEW)) is None
    assert rekeyed(before, loaded, {}) is None
    assert rekeyed(before, loaded, {**told(NEW), "https://other.example": told(NEW)[ISSUER]}) is None
