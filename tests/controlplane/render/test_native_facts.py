"""What native decisions rely on in Envoy, with every release that we test with."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from cryptography import x509
from tests.controlplane.render.native_lab import Lab, Place, bootstrap, lab, publish, shown
from tests.controlplane.render.native_names import ASK, ASKED, DECIDE, FILTERS, HEADERS, JWT, READER, SHADOW, Json
from tests.controlplane.render.native_rules import (
    DISABLED,
    FIRST,
    SECOND,
    TRUE,
    decides,
    header,
    requires,
    shadows,
    tokens,
)
from tests.policy.placement.test_workloads_envoy import certificate, context, with_tls
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.issuers.minting import signer
from tests.support.issuers.svids import uri

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.envoy_attributes import ID, MESSAGE, METHOD

pytestmark = pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.number)

GRANTED: Final = decides({"a/b": TRUE})
ALONE: Final[Mapping[str, Json]] = {JWT: DISABLED, READER: DISABLED}
RBAC_METADATA: Final = "envoy.filters.http.rbac"
TOKEN_METADATA: Final = "envoy.filters.http.jwt_authn"


def dynamic(namespace: str, *path: str) -> str:
    return f"%DYNAMIC_METADATA({':'.join((namespace, *path))})%"


def call(**members: object) -> str:
    """Write a call of a tool."""
    return json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "add"}, **members})


# --- Rules


class Ruled(NamedTuple):
    """A request with these headers set to 1, and what comes of it: its status, and what RBAC wrote."""

    place: str
    headers: tuple[str, ...]
    status: int
    written: Json | None


def allowed(name: str, **more: str) -> Json:
    return {"enforced_effective_policy_id": name, "enforced_engine_result": "allowed", **more}


ASKING: Final = {"~ask": TRUE, "a/b": header("x-a", "1"), "!ask": header("x-odd", "1"), "Z/z": header("x-z", "1")}
POLICY: Final = shadows({"n/p/r": header("x-a", "1"), "~ask": header("x-ask", "1")}, "p0_")
FOUND: Final = condition_nodes.member(condition_nodes.METADATA, RBAC_METADATA, "p0_shadow_effective_policy_id")
RULED_PLACES: Final = (
    Place(name="ordered", route={**ALONE, DECIDE: decides(ASKING)}),
    Place(name="forgotten", route=ALONE),
    Place(name="disabled", route={**ALONE, DECIDE: DISABLED}),
    Place(name="cluster", cluster={**ALONE, DECIDE: GRANTED}),
    Place(name="cluster-disabled", cluster={**ALONE, DECIDE: DISABLED, ASK: DISABLED}),
    Place(name="both", route={**ALONE, DECIDE: GRANTED}, cluster={DECIDE: decides({"c/d": header("x-a", "1")})}),
    Place(name="no-rules", route={**ALONE, DECIDE: {"@type": f"{FILTERS}.rbac.v3.RBACPerRoute"}}),
    Place(
        name="joined",
        route={**ALONE, SHADOW: POLICY,
               DECIDE: decides({"a/b": condition_nodes.equal(FOUND, "n/p/r"),
                                "~ask": condition_nodes.equal(FOUND, "~ask")})},
    ),
)  # fmt: skip
SHADOWED: Final = {"p0_shadow_effective_policy_id": "n/p/r", "p0_shadow_engine_result": "allowed"}
UNSURE: Final = {"p0_shadow_effective_policy_id": "~ask", "p0_shadow_engine_result": "allowed"}
RULED: Final = {
    "whom no rule grants may be asked about": Ruled("ordered", (), ASKED, allowed("~ask")),
    "a grant is not asked about": Ruled("ordered", ("x-a",), 200, allowed("a/b")),
    "capitals come before small letters": Ruled("ordered", ("x-a", "x-z"), 200, allowed("Z/z")),
    "an exclamation mark comes before both": Ruled("ordered", ("x-a", "x-z", "x-odd"), ASKED, allowed("!ask")),
    "a place without rules of its own is closed": Ruled("forgotten", (), 403, None),
    "without the filter nothing is written, and that asks": Ruled("disabled", (), ASKED, None),
    "an override without rules is no filter": Ruled("no-rules", (), ASKED, None),
    "a cluster has rules of its own": Ruled("cluster", (), 200, allowed("a/b")),
    "a cluster may be without filters": Ruled("cluster-disabled", (), 200, None),
    "a cluster's rules replace those of its route": Ruled("both", (), 403, None),
    "and not only deny": Ruled("both", ("x-a",), 200, allowed("c/d")),
    "what a policy denies in shadow is read by who decides": Ruled(
        "joined", (), 403, {"p0_shadow_engine_result": "denied"}
    ),
    "so is what it grants": Ruled("joined", ("x-a",), 200, allowed("a/b", **SHADOWED)),
    "and what it leaves open": Ruled("joined", ("x-ask",), ASKED, allowed("~ask", **UNSURE)),
}


@pytest.mark.real
async def test_rules_are_tried_by_name_and_say_which_one_granted_but_never_which_denied(
    version: Version, tmp_path: Path
) -> None:
    publish(tmp_path, tokens(FIRST))
    config = bootstrap(RULED_PLACES, tmp_path, headers={"x-rbac": dynamic(RBAC_METADATA)})
    found = {}
    async with lab(config, tmp_path, version) as running:
        for name, case in RULED.items():
            response = await running.send(case.place, headers=[(each, "1") for each in case.headers])
            written = response.headers["x-rbac"]
            status = response.status_code
            found[name] = Ruled(case.place, case.headers, status, json.loads(written) if written else None)
    assert found == RULED


@pytest.mark.real
async def test_options_of_expressions_hold_only_if_all_rules_have_them(version: Version, tmp_path: Path) -> None:
    joined = condition_nodes.equal(
        condition_nodes.call("_+_", condition_nodes.name("request.method"), condition_nodes.literal("!")), "GET!"
    )
    both = {"a/a": header("x-a", "1"), "a/b": joined}
    made = {name: Place(name=name, route={**ALONE, DECIDE: decides(both)}) for name in ("none", "one", "all")}
    for place, names in (("one", ("a/b",)), ("all", ("a/a", "a/b"))):
        for name in names:
            policy = made[place].route[DECIDE]["rbac"]["rules"]["policies"][name]
            policy["cel_config"] = {"enable_string_concat": True}
    publish(tmp_path, tokens(FIRST))
    async with lab(bootstrap(made.values(), tmp_path), tmp_path, version) as running:
        statuses = {name: (await running.send(name)).status_code for name in made}
    assert statuses == {"none": 403, "one": 403, "all": 200}


# --- Tokens


def token(issuer: str = FIRST, *, number: int = 0, kid: str = "k1", **claims: object) -> str:
    """Sign a token with the key of the issuer of that number."""
    made = signer("ES256", number=number)
    exp = int(datetime.now(UTC).timestamp()) + 600
    return made.token({"iss": issuer, "sub": "ann", "exp": exp, **claims}, made.header(kid=kid))


OTHERS: Final[Json] = {"code": 24, "message": "Jwt issuer is not configured"}


def failed(code: int, message: str) -> Json:
    return {f"failed {FIRST}": {"code": code, "message": message}, f"failed {SECOND}": OTHERS}


FAILED: Final[Mapping[str, tuple[dict[str, Any], Json]]] = {
    "an unknown key": ({"kid": "k9"}, failed(32, "Jwks doesn't have key to match kid or alg from Jwt")),
    "expired": ({"exp": 1000}, failed(3, "Jwt is expired")),
    "not yet valid": ({"nbf": 9_000_000_000}, failed(2, "Jwt not yet valid")),
    "another's signature": ({"number": 1}, failed(26, "Jwt verification fails")),
    "an unknown issuer": ({"issuer": "https://x.example"}, failed(*OTHERS.values())),
}


@pytest.mark.real
async def test_tokens_are_verified_by_the_name_of_a_requirement_and_failures_are_told(
    version: Version, tmp_path: Path
) -> None:
    sees = condition_nodes.call(
        "@in", condition_nodes.literal("authorization"), condition_nodes.name("request.headers")
    )
    places = (
        Place(name="route", route={READER: DISABLED, JWT: requires("all"), DECIDE: GRANTED}),
        Place(name="cluster", cluster={READER: DISABLED, JWT: requires("all"), DECIDE: GRANTED}),
        Place(name="unknown", route={JWT: requires("all")}, cluster={**ALONE, JWT: requires("gone"), DECIDE: GRANTED}),
        Place(name="unnamed", route={READER: DISABLED, DECIDE: GRANTED}),
        Place(name="strips", route={**ALONE, JWT: requires("all"), DECIDE: decides({"a/b": sees})},
              remove=("authorization",)),
    )  # fmt: skip
    publish(tmp_path, tokens(FIRST, SECOND))
    config = bootstrap(places, tmp_path, headers={"x-told": dynamic(TOKEN_METADATA)})
    async with lab(config, tmp_path, version) as running:

        async def told(place: str, credentials: str) -> tuple[int, Json, str]:
            response = await running.send(place, headers=[("authorization", credentials)])
            found = json.loads(response.headers["x-told"] or "{}")
            return response.status_code, found, response.headers.get("x-reached", "")

        good = f"Bearer {token(SECOND, number=1, exp=9_000_000_000)}"
        claims = {"iss": SECOND, "sub": "ann", "exp": 9_000_000_000}
        parts = {SECOND: claims, f"header {SECOND}": {"alg": "ES256", "kid": "k1", "typ": "JWT"}}
        known = {**parts, f"failed {FIRST}": OTHERS}
        assert await told("route", good) == (200, known, good)
        assert await told("cluster", good) == (200, known, good)
        assert await told("strips", good) == (200, known, "")
        assert await told("unnamed", good) == (200, {}, good)
        assert await told("unknown", good) == (403, {}, "")
        assert await told("route", "Basic YTpi") == (200, {}, "Basic YTpi")
        seen = {name: (await told("route", f"Bearer {token(**made)}"))[1] for name, (made, _) in FAILED.items()}
    assert seen == {name: told for name, (_, told) in FAILED.items()}


@pytest.mark.real
async def test_new_keys_count_on_connections_that_are_open(version: Version, tmp_path: Path) -> None:
    has_claims = condition_nodes.call("@in", condition_nodes.literal(TOKEN_METADATA), condition_nodes.METADATA)
    known = condition_nodes.call(
        "@in", condition_nodes.literal(SECOND), condition_nodes.member(condition_nodes.METADATA, TOKEN_METADATA)
    )
    granted = decides({"a/b": condition_nodes.every((has_claims, known))})
    publish(tmp_path, tokens(FIRST))
    config = bootstrap([Place(name="route", route={**ALONE, JWT: requires("all"), DECIDE: granted})], tmp_path)
    async with lab(config, tmp_path, version) as running:
        credentials = ("authorization", f"Bearer {token(SECOND, number=1)}")

        async def passes() -> bool:
            return (await running.send("route", headers=[credentials])).status_code == 200

        assert not await passes()
        publish(tmp_path, tokens(FIRST, SECOND), version="2")
        await eventually(passes)
        connections = await running.envoy.admin("/stats?filter=http.front.downstream_cx_total")
    assert connections.body.strip() == "http.front.downstream_cx_total: 1"


# --- Messages


def keeps(*arguments: str) -> Json:
    return {"@type": f"{FILTERS}.lua.v3.LuaPerRoute", "filter_context": {"arguments": "\n".join(arguments)}}


READ: Final[Json] = {"method": "tools/call", "subject": "add", "id": "1", "version": "2025-03-26", "session": ""}
PLACES: Final[Mapping[str, tuple[Json, Json | None]]] = {
    "nothing is said": ({}, READ),
    "the reader is off": ({READER: DISABLED}, None),
    "an argument": ({READER: keeps("a")}, READ | {"params": {"": True, "a": 1}}),
    "arguments that the call does not have": ({READER: keeps("b", "c d")}, READ | {"params": {"": True}}),
}


@pytest.mark.real
@pytest.mark.parametrize("where", ["route", "cluster"])
async def test_a_place_says_whether_messages_are_read_and_which_arguments(
    version: Version, where: str, tmp_path: Path
) -> None:
    publish(tmp_path, tokens(FIRST))
    said = [{JWT: DISABLED, DECIDE: GRANTED, **each} for each, _ in PLACES.values()]
    places = [
        Place(name=str(number), route=each) if where == "route" else Place(name=str(number), cluster=each)
        for number, each in enumerate(said)
    ]
    found = {}
    config = bootstrap(places, tmp_path, headers={"x-read": dynamic(*MESSAGE)})
    async with lab(config, tmp_path, version) as running:
        for number, name in enumerate(PLACES):
            body = call(id=1, params={"name": "add", "arguments": {"a": 1, "z": 2}})
            response = await running.call(str(number), body)
            assert response.status_code == 200
            found[name] = json.loads(response.headers["x-read"] or "null")
    assert found == {name: read for name, (_, read) in PLACES.items()}


@pytest.mark.real
async def test_the_reader_refuses_nothing_and_waits_for_no_body_without_a_length(
    version: Version, tmp_path: Path
) -> None:
    publish(tmp_path, tokens(FIRST))
    place = Place(name="all", route={JWT: DISABLED, DECIDE: GRANTED})
    config = bootstrap([place], tmp_path, headers={"x-read": dynamic(*MESSAGE)})
    head = "\r\n".join(["POST /all HTTP/1.1", "host: lab", *(f"{name}: {value}" for name, value in HEADERS)])
    async with lab(config, tmp_path, version) as running:
        opened = await running.send("all", headers=[("accept", "text/event-stream")])
        odd = [await running.call("all", body) for body in ("hello", f"[{call(id=1)}]", call(id=1, pad="x" * 70_000))]
        assert [(each.status_code, each.headers["x-read"]) for each in (opened, *odd)] == [(200, "")] * 4
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "front"))
            # The rest is never sent, and nobody misses it.
            writer.write(f"{head}\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n".encode())
            status = await reader.readline()
            writer.close()
            await writer.wait_closed()
    assert status == b"HTTP/1.1 200 OK\r\n"


# --- What Envoy itself says


def denial(mapper: str, status: int, *matchers: Json, sound: bool) -> Json:
    """Return what is said about denials that have all of this."""
    is_denial = {
        "status_code_filter": {"comparison": {"op": "EQ", "value": {"default_value": 403, "runtime_key": "x"}}}
    }
    whole = [is_denial, *({"metadata_filter": {"matcher": each, "match_if_key_not_found": sound}} for each in matchers)]
    body = f'{{"id":{dynamic(*ID)},"level":%METADATA(ROUTE:authplane:level)%}}'
    challenge = 'Bearer resource_metadata="%METADATA(ROUTE:authplane:resource)%"'
    return {
        "filter": {"and_filter": {"filters": whole}} if matchers else is_denial,
        "status_code": status,
        "headers_to_add": [shown("x-mapper", mapper), shown("www-authenticate", challenge)],
        "body_format_override": {"text_format_source": {"inline_string": body}, "content_type": "application/json"},
    }


PING: Final[Json] = {
    "filter": METHOD[0],
    "path": [{"key": each} for each in METHOD[1:]],
    "value": {"string_match": {"exact": "ping"}},
}
GONE: Final[Json] = {"filter": "nobody", "path": [{"key": "x"}], "value": {"present_match": True}}
SAID: Final[Mapping[str, tuple[str, str]]] = {
    "a number": ("7", "last"),
    "a number with many digits": ("123456789012345", "last"),
    "a fraction": ("1.50", "last"),
    "a text": (r'"q\"\\é\u00e9"', "last"),
    "what looks like a command": ('"%REQ(:path)%"', "last"),
    "another method": ("1", "ping"),
}
"""Ids as they are written, and which words the denial has."""


@pytest.mark.real
async def test_denials_have_the_id_of_the_request_and_what_the_route_says(version: Version, tmp_path: Path) -> None:
    publish(tmp_path, tokens(FIRST))
    mappers = [
        denial("never", 500, GONE, sound=False),
        denial("ping", 403, PING, sound=False),
        denial("last", 401, GONE, sound=True),
    ]
    place = Place(name="closed", route={JWT: DISABLED}, metadata={"resource": "https://r.example/m", "level": 3})
    found: dict[str, tuple[str, str]] = {}
    async with lab(bootstrap([place], tmp_path, replies={"mappers": mappers}), tmp_path, version) as running:
        for name, (id_, mapper) in SAID.items():
            method = "ping" if mapper == "ping" else "tools/call"
            body = f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}","params":{{"name":"add"}}}}'
            response = await running.call("closed", body)
            assert response.headers["content-type"] == "application/json"
            assert response.headers["www-authenticate"] == 'Bearer resource_metadata="https://r.example/m"'
            assert response.status_code == (403 if response.headers["x-mapper"] == "ping" else 401)
            told = response.text.removeprefix('{"id":').removesuffix(',"level":3}')
            found[name] = (told, response.headers["x-mapper"])
    assert found == SAID


# --- Certificates


@pytest.mark.real
async def test_rules_see_the_names_of_a_certificate_and_nothing_that_a_client_says_of_it(
    version: Version, tmp_path: Path
) -> None:
    publish(tmp_path, tokens(FIRST))
    told = condition_nodes.member(condition_nodes.name("request.headers"), "x-forwarded-client-cert")
    one, other = "spiffe://cluster.local/one", "spiffe://cluster.local/other"
    both = condition_nodes.every(
        (
            condition_nodes.matches(told, f"URI={one};URI={other}$"),
            condition_nodes.negated(condition_nodes.matches(told, "forged")),
        )
    )
    granted = decides({"a/b": both})
    config = with_tls(bootstrap([Place(name="all", route={**ALONE, DECIDE: granted})], tmp_path))
    made = certificate(uri(one), uri(other), x509.DNSName("client.example"))
    trusting: ssl.SSLContext = context(made, tmp_path)
    async with lab(config, tmp_path, version) as running:
        transport = httpx2.AsyncHTTPTransport(uds=str(tmp_path / "front"), verify=trusting)
        async with httpx2.AsyncClient(transport=transport, timeout=20) as client:
            secure = Lab(running.envoy, client, scheme="https")
            response = await secure.send("all", headers=[("x-forwarded-client-cert", "URI=forged")])
    assert response.status_code == 200
