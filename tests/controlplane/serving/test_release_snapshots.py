"""What proxies of different releases get of one generation, and what is kept for the next one."""

import json
from typing import Final

import pytest
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, gateway, policy, route
from tests.support.issuers.minting import ISSUER, signer
from tests.support.resources.contour_documents import whole

from authplane.controlplane.graph.model.programming import TOKENS
from authplane.controlplane.render.rendered import snapshot_of
from authplane.controlplane.render.resource_parts import Bodies
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.controlplane.serving.release_snapshots import depends_on_release
from authplane.core.envoy_releases import CURRENT, NEWEST, OLDEST, Release, first_alike
from authplane.sources.document_versions import Library
from authplane.xds.server.served_types import TypeUrl

RELEASES: Final = (None, *(Release(1, minor) for minor in range(OLDEST.minor, NEWEST.minor + 1)))
CONFIGURATION: Final = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec:
  gateway: {address: 127.0.0.1}
  policyServer: {address: "unix:/run/policy.sock"}
"""
SOURCE: Final = f"{{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}"
RULE: Final = f"[{{source: {SOURCE}, authorization: [{{type: InlineTools, tools: [TOOL]}}]}}]"


def keys(algorithm: str = "ES256") -> dict[str, str]:
    return {ISSUER: json.dumps({"keys": [signer(algorithm).jwk()]})}


def files(tool: str = "add") -> dict[str, str]:
    """Return a world in which Envoy decides about a tool."""
    documents = (
        CONFIGURATION,
        gateway(8080, 8443),
        tls_secret("tls", server("localhost")),
        ca_secret("ca"),
        backend("shop"),
        service("shop", 9000),
        route("shop", {"shop": 1}),
    )
    return {"world": "\n---\n".join(documents), "policy": policy(RULE.replace("TOOL", tool))}


class History:
    """Generations, one after the other."""

    def __init__(self) -> None:
        self.library = Library()
        self.last: Generation | None = None

    def next(self, texts: dict[str, str], key_sets: dict[str, str] | None = None) -> Generation:
        for name, text in texts.items():
            self.library.changed(f"{name}.yaml", text.encode())
        self.last = build_generation(self.library.current(), self.last, keys=key_sets)
        return self.last


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_an_edition_is_what_its_release_would_get_without_the_others(release: Release | None) -> None:
    history = History()
    shadow = {"policy": files()["policy"].replace("spec:", "spec:\n  mode: Shadow")}
    steps: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
        (files(), keys()),
        (files("wipe"), keys()),
        (files("wipe"), keys("RS256")),
        (shadow, keys()),
        (shadow, {}),
    )
    for texts, key_sets in steps:
        made = history.next(texts, key_sets)
        assert {each.problem.reason for each in made.findings} <= {"ShadowOnly"}
        for each in RELEASES:
            made.edition(each)
        assert made.edition(release) == snapshot_of(made.built.graph, Bodies(), None, release)


def test_old_proxies_and_those_that_do_not_say_what_they_are_are_left_to_the_policy_server() -> None:
    made = History().next(files(), keys())
    assert depends_on_release(made.built.graph)
    assert list(made.snapshot.resources(TypeUrl.EXTENSION)) == [TOKENS]
    assert made.edition(None).resources(TypeUrl.EXTENSION) == {}
    assert made.edition(Release(1, 35)) is made.edition(None)


def test_a_newer_release_than_the_newest_known_is_taken_for_it() -> None:
    made = History().next(files(), keys())
    assert made.edition(Release(1, 99)) is made.edition(NEWEST)
    assert made.edition(Release(2, 0)) is made.edition(NEWEST)


def test_releases_that_get_the_same_share_it() -> None:
    made = History().next(files(), keys())
    assert made.edition(CURRENT) is made.snapshot
    assert made.edition(NEWEST) is made.snapshot
    # Older releases have no shadow mode for checks.
    assert made.edition(Release(1, 37)) is not made.snapshot
    assert [first_alike(each) for each in RELEASES if each is not None] == [
        Release(1, 36),
        Release(1, 37),
        *[Release(1, 38)] * 3,
    ]


def test_releases_are_alike_only_if_nothing_sets_them_apart() -> None:
    differ = {name for name, found in vars(Release).items() if isinstance(found, property)} - {"features"}
    for release in filter(None, RELEASES):
        assert len(release.features) == len(differ)
        assert set(release.features) == {getattr(release, name) for name in differ}


def test_what_is_the_same_for_all_releases_is_there_once() -> None:
    made = History().next(files(), keys())
    other = made.edition(None)
    shared = {url for url in TypeUrl if other.collection(url) is made.snapshot.collection(url)}
    assert shared == {TypeUrl.CLUSTER, TypeUrl.ENDPOINT, TypeUrl.SECRET}


def test_what_did_not_change_for_a_release_is_the_same_object() -> None:
    history = History()
    before = history.next(files(), keys()).edition(NEWEST)
    after = history.next(files(), keys("RS256")).edition(NEWEST)
    changed = {url for url in TypeUrl if after.collection(url) is not before.collection(url)}
    assert changed == {TypeUrl.EXTENSION}


def test_nothing_is_kept_for_releases_that_nobody_asks_for() -> None:
    history = History()
    made = history.next(files(), keys())
    made.edition(OLDEST)
    made.edition(None)
    assert set(made.snapshots.carried()) == {first_alike(CURRENT), OLDEST, None}
    made = history.next(files("wipe"), keys())
    made.edition(None)
    assert set(made.snapshots.carried()) == {first_alike(CURRENT), None}
    made = history.next(files("add"), keys())
    assert set(made.snapshots.carried()) == {first_alike(CURRENT)}


def test_without_gateways_that_check_requests_all_releases_share_one_snapshot() -> None:
    made = History().next(whole())
    assert not depends_on_release(made.built.graph)
    assert all(made.edition(release) is made.snapshot for release in RELEASES)
    for release in RELEASES:
        assert snapshot_of(made.built.graph, Bodies(), None, release) == made.snapshot
