"""Envoy grants by the conditions of entries what the policy engine grants, and recognises no other senders."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.envoy.answered_conditions import Sent, answering
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.issuers.keyrings import ring, verify
from tests.support.issuers.minting import ISSUER, claims, mint, signer

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.request_checks import Equals, Header
from authplane.cel.envoy.translate import NOBODY as NOBODY_HERE
from authplane.cel.envoy.translate import Condition
from authplane.policy.check.request import Request
from authplane.policy.decide.match_rules import match_source, obstacle
from authplane.policy.decide.request_case import NOBODY, Identity
from authplane.policy.identity.tokens.bearer import Bearer, parse_bearer
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.mcp.base_methods import is_base
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.placement.entry_placement import place_base, place_entry
from authplane.policy.placement.native_requests import build_front
from authplane.policy.placement.placement_model import Native, Sender, Terms
from authplane.policy.placement.source_placement import place_source
from authplane.policy.rules.access_settings import Settings
from authplane.policy.rules.rule_model import AllTools, Entry, Everything, Family, Inline, McpGrant, Method, Oidc, Tools

pytestmark = pytest.mark.real

both = pytest.mark.parametrize("envoy", VERSIONS, ids=str)
TERMS: Final = Terms()


def rpc(method: str, *, id_: object = 1, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params} | ({} if id_ is None else {"id": id_}))


ENTRIES: Final[dict[str, Entry]] = {
    "tools": Tools(frozenset({"add", "read"})),
    "all tools": AllTools(),
    "everything": Everything(),
    "methods": Inline(methods=frozenset({"GET", "PUT"})),
    "paths": Inline(paths=("/mcp", "/a/*", "/a%20b")),
    "all paths": Inline(paths=("/*",)),
    "a header": Inline(headers=(("x-role", "admin"),)),
    "a header and a method": Inline(headers=(("x-role", "admin"),), methods=frozenset({"POST"})),
    "a host": Inline(hosts=("shop.test",)),
    "hosts": Inline(hosts=("*.test", "[::1]")),
    "a tool by its method": Inline(mcp=McpGrant(methods=(Method("tools/call", frozenset({"add"})),))),
    "prompts": Inline(mcp=McpGrant(methods=(Family("prompts/"),))),
    "a prompt": Inline(mcp=McpGrant(methods=(Method("prompts/get", frozenset({"add"})),))),
    "a resource": Inline(mcp=McpGrant(methods=(Method("resources/read", frozenset({"file:///a"})), Method("ping")))),
    "the base protocol": Inline(mcp=McpGrant(base=True)),
    "a path and tools": Inline(paths=("/mcp",), mcp=McpGrant(methods=(Family("tools/"),))),
}
BODIES: Final = (
    "",
    rpc("tools/call", name="add", arguments={}),
    rpc("tools/call", name="Add", arguments={}),
    rpc("tools/call", id_=None, name="read", arguments={}),
    rpc("tools/list"),
    rpc("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "a", "version": "1"}),
    rpc("notifications/initialized", id_=None),
    rpc("notifications/initialized"),
    rpc("logging/setLevel", level="debug"),
    rpc("prompts/get", name="add"),
    rpc("prompts/list"),
    rpc("resources/read", uri="file:///a"),
    rpc("ping"),
    json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}),
)
PLAIN: Final = (
    Sent(),
    Sent(path="/a/b", headers=(("x-role", "admin"),)),
    Sent(path="/a/../b", headers=(("x-role", "admin"), ("x-role", "user"))),
    Sent(path="/a%20b", headers=(("x-role", "admin"), ("x_role", "user"))),
    Sent(path="//a", host="SHOP.test:8080"),
    Sent(host="shop.test."),
    Sent(host="a.shop.test"),
    Sent(host="shop.tests"),
    Sent(host="[::1]:80"),
)
FRONTS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "a version": (("mcp-protocol-version", "2025-06-18"),),
    "the version without sessions": (("mcp-protocol-version", "2026-07-28"),),
    "a version that nobody knows": (("mcp-protocol-version", "1"),),
    "two versions": (("mcp-protocol-version", "2025-06-18"), ("mcp-protocol-version", "2025-06-18")),
    "a version with an underscore": (("mcp_protocol_version", "2025-06-18"),),
    "a session": (("mcp-session-id", "a"),),
    "two sessions": (("mcp-session-id", "a"), ("mcp-session-id", "b")),
    "a session with a comma": (("mcp-session-id", "a,b"),),
    "a session with a space": (("mcp-session-id", "a b"),),
    "a long session": (("mcp-session-id", "a" * 8192),),
    "an empty session": (("mcp-session-id", ""),),
    "credentials twice": (("authorization", "a"), ("authorization", "b")),
    "credentials that are joined": (("authorization", "a, b"),),
    "other credentials": (("authorization", "Basic YTpi"),),
    "an event": (("last-event-id", "1"),),
    "two content types": (("content-type", "application/json"),),
    "no JSON": (("content-type", "text/plain"),),
    "the method again": (("mcp-method", "tools/call"),),
    "another method": (("mcp-method", "tools/list"),),
    "the name again": (("mcp-name", "add"),),
    "another name": (("mcp-name", "evil"),),
    "an encoding": (("content-encoding", "gzip"),),
    "another HTTP method": (("x-http-method-override", "GET"),),
    "another HTTP method with underscores": (("x_http_method_override", "GET"),),
}
MEANT: Final = {
    "a version", "a session", "a long session", "other credentials", "an event", "the method again", "the name again",
}  # fmt: skip
"""What the policy server takes, and Envoy may judge."""
ASKED_ABOUT: Final = {"the version without sessions"}
"""What the policy server may take, and Envoy does not judge."""


def conditions(entries: Mapping[str, Entry]) -> list[Condition]:
    found = []
    for entry in entries.values():
        place = place_entry(entry, NOBODY_HERE, TERMS, is_mcp=True)
        assert isinstance(place, Native), place
        found.append(place.condition)
    return found


@pytest.mark.requirement("R32")
async def test_envoy_grants_what_entries_grant(tmp_path: Path) -> None:
    front = build_front(is_mcp=True, reads_mcp=True)
    base = place_base(TERMS, is_mcp=True)
    assert isinstance(base, Native)
    different = []
    async with answering([front, base.condition, *conditions(ENTRIES)], tmp_path) as envoy:
        for body, sent in product(BODIES, PLAIN):
            asked = Sent(
                method="POST" if body else "GET", path=sent.path, host=sent.host, headers=sent.headers, body=body
            )
            case = asked.case()
            call = case.call()
            judged = await envoy.holds(0, asked)
            assert not (judged and isinstance(call, McpRefusal)), (asked, call)
            if judged and call is not None and not isinstance(call, McpRefusal):
                granted = {"base": (await envoy.holds(1, asked), is_base(call))}
                for number, (name, entry) in enumerate(ENTRIES.items(), start=2):
                    granted[name] = (await envoy.holds(number, asked), not obstacle(entry, case, NOBODY))
                different += [(name, asked, *both) for name, both in granted.items() if both[0] != both[1]]
    assert different == []
    assert envoy.statuses == {299, 403}


@both
async def test_envoy_judges_no_request_that_the_policy_server_refuses(tmp_path: Path, envoy: Version) -> None:
    front = build_front(is_mcp=True, reads_mcp=True)
    found = {}
    async with answering([front], tmp_path, underscores="REJECT_REQUEST", envoy=envoy) as asking:
        for name, headers in FRONTS.items():
            asked = Sent(headers=headers, body=rpc("tools/call", name="add", arguments={}))
            found[name] = (await asking.holds(0, asked), not isinstance(asked.case().call(), McpRefusal))
    assert {name for name, (envoys, _) in found.items() if envoys} == MEANT
    assert {name for name, (envoys, ours) in found.items() if ours and not envoys} <= ASKED_ABOUT
    assert [name for name, (envoys, ours) in found.items() if envoys and not ours] == []


async def test_what_fails_allows_nothing_and_turned_round_neither(tmp_path: Path) -> None:
    granted = Condition(check=Header(":method", Equals("GET")))
    failing = Condition(tree=condition_nodes.equal(condition_nodes.MISSING, "a"))
    turned = Condition(tree=condition_nodes.negated(failing.tree))
    async with answering([granted, granted.and_then(failing), failing, turned], tmp_path) as envoy:
        assert [await envoy.holds(number, Sent(method="GET")) for number in range(4)] == [True, False, False, False]


async def test_the_front_of_a_server_whose_rules_read_no_body_keeps_upgrades_out(tmp_path: Path) -> None:
    front = build_front(is_mcp=True, reads_mcp=False)
    async with answering([front], tmp_path) as envoy:
        plain, upgrade = Sent(method="GET", path="/a//b"), Sent(method="GET", headers=(("http2-settings", "a"),))
        assert (await envoy.holds(0, plain), await envoy.holds(0, upgrade)) == (True, False)


# --- Tokens

SOURCES: Final = {
    "any audience": Oidc(issuer=IssuerUrl(url=ISSUER, literal=ISSUER)),
    "an audience": Oidc(issuer=IssuerUrl(url=ISSUER, literal=ISSUER), audiences=frozenset({"shop", "https://Srv/"})),
    "scopes": Oidc(issuer=IssuerUrl(url=ISSUER, literal=ISSUER), scopes=("read", "tools.*")),
}
OTHERS: Final = [f"other-{number}" for number in range(12)]
PAYLOADS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "no audience": {"aud": None},
    "the audience": {"aud": "shop"},
    "an audience in another case": {"aud": "Shop"},
    "an audience without its scheme": {"aud": "Srv"},
    "the audience among others": {"aud": ["a", "shop"]},
    "the audience behind three others": {"aud": ["a", "b", "c", "shop"]},
    "the audience and a number": {"aud": ["shop", 1]},
    "a number as audience": {"aud": 1},
    "an empty list": {"aud": []},
    "a scope": {"scope": "read"},
    "a scope among others": {"scope": "write read  x"},
    "a scope in a longer one": {"scope": "reads tools.all"},
    "a scope with signs": {"scope": "tools.*"},
    "scopes in a list": {"scp": ["write", "read"]},
    "other scopes in a list": {"scp": ["write"]},
    "other scopes in a list, by the other name": {"scope": ["write", "reads"]},
    "no scopes in a list": {"scp": []},
    "a scope in a list, last of as many as Envoy looks at": {"scp": [*OTHERS[:11], "read"]},
    "a scope in a list that is longer": {"scp": [*OTHERS[:12], "read"]},
    "a number behind a scope, last of as many as Envoy looks at": {"scp": ["read", *OTHERS[:10], 1]},
    "a scope and a number": {"scp": ["read", 1]},
    "scopes of which one is in scp": {"scope": "write", "scp": "read"},
    "issued later": {"iat": "+600"},
    "issued within the skew": {"iat": "+10"},
    "issued within the skew, and not at a second": {"iat": 1_700_000_000.5},
    "issued at a text": {"iat": "text"},
    "issued never": {"iat": None},
    "begins later": {"nbf": "+600"},
    "expired": {"exp": "-600"},
    "expired within the skew": {"exp": "-10"},
    "no end": {"exp": None},
    "a subject that is no text": {"sub": 1},
    "no subject": {"sub": None},
    "an id that is no text": {"jti": {}},
    "another issuer": {"iss": "https://other.example"},
    "the issuer with a slash": {"iss": f"{ISSUER}/"},
    "an audience list that is long": {"aud": ["a", "b", "c", "d", "shop"]},
}
HEADERS: Final[dict[str, dict[str, Any]]] = {
    "an access token": {"typ": "at+jwt"},
    "a type in full": {"typ": "application/AT+JWT"},
    "no type": {"typ": None},
    "a logout token": {"typ": "logout+jwt"},
    "a type that is no text": {"typ": 1},
    "something critical": {"crit": ["exp"], "exp": 1},
    "an empty critical": {"crit": []},
    "b64": {"b64": True},
    "a nested token": {"cty": "JWT"},
    "no key": {"kid": None},
    "another key": {"kid": "k2"},
}
STRICTER: Final = {
    "issued never", "no key", "lower case", "a space too much", "a number as audience",
    "the audience and a number", "a scope in a list that is longer",
}  # fmt: skip
"""What Envoy does not take although the policy server does; about some of it the server is asked."""


def token(payload: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    now = int(datetime.now(UTC).timestamp())
    moved = {
        name: now + int(value) if isinstance(value, str) and value[0] in "+-" else value
        for name, value in payload.items()
    }
    key = signer("ES256")
    return mint(key.header(**header), claims(**{"iat": now, "exp": now + 600} | moved), key.sign)


def shown() -> dict[str, tuple[tuple[str, str], ...]]:
    """Return values of Authorization, good and bad ones."""
    good = token({"aud": "shop", "scope": "read"}, {})
    found = {name: f"Bearer {token(payload, {})}" for name, payload in PAYLOADS.items()}
    found |= {name: f"Bearer {token({}, header)}" for name, header in HEADERS.items()}
    found |= {
        "lower case": f"bearer {good}",
        "something before it": f"Foo Bearer {good}",
        "a space too much": f"Bearer  {good}",
        "no signature": f"Bearer {good.rpartition('.')[0]}.",
        "another signature": f"Bearer {good[:-6]}AAAAAA",
        "padding": f"Bearer {good}=",
        "basic": "Basic YTpi",
    }
    twice = (("authorization", f"Bearer {good}"), ("authorization", f"Bearer {good}"))
    return {"nothing": (), "twice": twice} | {name: (("authorization", value),) for name, value in found.items()}


class Shown:
    """Evidence of a token alone."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def token(self) -> object:
        found = parse_bearer(self._request)
        if not isinstance(found, Bearer):
            return found
        return verify(found.token, ring(signer("ES256")), datetime.now(UTC).timestamp())


@pytest.mark.requirement("R18")
@pytest.mark.requirement("R20")
@pytest.mark.requirement("R22")
@both
async def test_envoy_recognises_no_token_that_the_policy_engine_does_not(tmp_path: Path, envoy: Version) -> None:
    senders = [place_source(source, Settings()) for source in SOURCES.values()]
    fit = [each.shown for each in senders if isinstance(each, Sender)]
    wider, stricter = [], []
    async with answering(fit, tmp_path, envoy=envoy) as asking:
        for (number, source), (name, headers) in product(enumerate(SOURCES.values()), shown().items()):
            sent = Sent(method="GET", headers=headers)
            ours = isinstance(match_source(source, sent.case(Shown(sent.request()))), Identity)
            envoys = await asking.holds(number, sent)
            wider += [(name, source)] if envoys and not ours else []
            stricter += [name] if ours and not envoys else []
    assert len(fit) == len(SOURCES)
    assert wider == []
    assert set(stricter) == STRICTER
    assert asking.statuses == {299, 403}
