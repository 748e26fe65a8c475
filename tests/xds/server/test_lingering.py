"""A filter that verifies tokens keeps the requirements that routes of before may name, for a while."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as pb

from authplane.controlplane.render.native.native_enforcement import Provider
from authplane.controlplane.render.native.token_filter import claims_only, render_tokens
from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.lingering.lingering_state import LINGER
from authplane.xds.server.lingering.wire import join_extension
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import DeltaRequest, SotwRequest

EXTENSION, ROUTE = TypeUrl.EXTENSION, TypeUrl.ROUTE
NAME = "authplane/tokens"
BOTH = {"a": "https://first", "b": "https://second"}
ONE = {"b": "https://second"}


def tokens(wanted: dict[str, str], keys: str = "old") -> bytes:
    """Return the extension for targets that want tokens of one issuer each."""
    providers = {name: (Provider(url, 30),) for name, url in wanted.items()}
    return render_tokens(providers, dict.fromkeys(wanted.values(), keys)).SerializeToString(deterministic=True)


def seen(body: bytes) -> dict[str, dict[str, str]]:
    """Return the requirements, and the keys of issuers."""
    config = pb.JwtAuthentication()
    assert TypedExtensionConfig.FromString(body).typed_config.Unpack(config)
    named = {name: each.requires_any.requirements[0].provider_name for name, each in config.requirement_map.items()}
    keys = {url: each.local_jwks.inline_string for url, each in config.providers.items()}
    for name, url in BOTH.items():  # each requirement and each issuer is there twice
        assert named.pop(claims_only(name), None) == (claims_only(url) if name in named else None)
        assert keys.pop(claims_only(url), None) == keys.get(url)
    return {"wanted": named, "keys": keys}


def test_what_is_gone_is_kept_and_what_is_there_is_new() -> None:
    assert seen(join_extension(tokens(BOTH), tokens(ONE, "new"))) == {
        "wanted": BOTH,
        "keys": {"https://first": "old", "https://second": "new"},
    }


UNJOINED = {
    "nothing is gone": (tokens(ONE), tokens(BOTH)),
    "only keys differ": (tokens(BOTH, "old"), tokens(BOTH, "new")),
    "the client's is not known": (b"", tokens(ONE)),
    "one that is no message": (b"1", tokens(ONE)),
    "another filter": (TypedExtensionConfig(name=NAME).SerializeToString(), tokens(ONE)),
}


@pytest.mark.parametrize(("held", "wanted"), UNJOINED.values(), ids=UNJOINED.keys())
def test_an_extension_that_lacks_nothing_stays_as_it_is(held: bytes, wanted: bytes) -> None:
    assert join_extension(held, wanted) == wanted


@dataclass
class Proxy:
    """A client that has a route and the extension it relies on."""

    session: Any
    nonces: dict[TypeUrl, str] = field(default_factory=dict)
    now: float = 0.0

    def ask(self, url: TypeUrl, name: str) -> list[Any]:
        delta = isinstance(self.session, DeltaSession)
        request: Any = (
            DeltaRequest(type_url=url, subscribe=(name,)) if delta else SotwRequest(type_url=url, names=(name,))
        )
        return self.heard(self.session.received(request, self.now))

    def answer(self, url: TypeUrl, error: str | None = None) -> list[Any]:
        delta = isinstance(self.session, DeltaSession)
        nonce = self.nonces[url]
        name = {EXTENSION: NAME, ROUTE: "r"}[url]
        request: Any = SotwRequest(type_url=url, names=(name,), nonce=nonce, error=error)
        if delta:
            request = DeltaRequest(type_url=url, nonce=nonce, error=error)
        return self.heard(self.session.received(request, self.now))

    def publish(self, extension: bytes, route: bytes) -> list[Any]:
        snapshot = Snapshot.of({EXTENSION: {NAME: extension}, ROUTE: {"r": route}})
        return self.heard(self.session.publish(snapshot, self.now))

    def wait(self) -> list[Any]:
        self.now = self.session.due()
        return self.heard(self.session.elapsed(self.now))

    def heard(self, output: Any) -> list[Any]:
        lines: list[Any] = []
        for each in output.responses:
            self.nonces[each.type_url] = each.nonce
            lines += [(name, seen(item.body) if name == NAME else item.body) for name, item in each.resources]
        return lines


@pytest.fixture(params=[SotwSession, DeltaSession], ids=["state of the world", "delta"])
def proxy(request: pytest.FixtureRequest) -> Proxy:
    made = Proxy(request.param())
    made.publish(tokens(BOTH), b"names a")
    made.ask(EXTENSION, NAME)
    made.answer(EXTENSION)
    made.ask(ROUTE, "r")
    made.answer(ROUTE)
    assert made.session.due() is None
    return made


def test_a_requirement_outlasts_the_routes_and_the_connections_that_name_it(proxy: Proxy) -> None:
    kept = {"wanted": BOTH, "keys": {"https://first": "old", "https://second": "new"}}
    assert proxy.publish(tokens(ONE, "new"), b"names b") == [(NAME, kept)]
    assert proxy.answer(EXTENSION) == [("r", b"names b")]
    proxy.now = 1
    assert proxy.answer(ROUTE) == []
    assert not proxy.session.standing.pending
    assert proxy.session.due() == LINGER
    assert proxy.wait() == [(NAME, {"wanted": ONE, "keys": {"https://second": "new"}})]
    assert proxy.answer(EXTENSION) == []
    assert proxy.session.due() is None


def test_a_requirement_that_returns_is_the_new_one(proxy: Proxy) -> None:
    proxy.publish(tokens(ONE), b"names b")
    proxy.answer(EXTENSION)
    proxy.answer(ROUTE)
    again = tokens(BOTH, "new")
    assert proxy.publish(again, b"names a") == [(NAME, seen(again))]


def test_what_the_client_refused_does_not_linger(proxy: Proxy) -> None:
    proxy.publish(tokens({**BOTH, "c": "https://third"}), b"names c")
    proxy.answer(EXTENSION, error="bad keys of the third")
    proxy.answer(ROUTE)
    assert proxy.publish(tokens(ONE), b"names b") == [(NAME, seen(tokens(BOTH)))]


def test_requirements_stay_as_long_as_the_client_refuses_the_routes_that_no_longer_name_them(proxy: Proxy) -> None:
    proxy.publish(tokens(ONE), b"names b")
    proxy.answer(EXTENSION)
    proxy.answer(ROUTE, error="no such thing")
    assert proxy.session.due() is None
