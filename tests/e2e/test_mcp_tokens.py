"""MCP clients with tokens of a real OpenID provider, through the real Envoy, to a server of the official SDK."""

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm
from mcp import MCPError
from tests.support.clients.npm import node_modules
from tests.support.eventually import eventually
from tests.support.gateways.mcp_gateway import McpGateway, deciding, deciding_apart, mcp_gateway, policy
from tests.support.issuers.minting import mint, segment, signer
from tests.support.issuers.oidc_provider import AUDIENCE, OidcProvider, oidc_provider
from tests.support.mcp.denial_bodies import split_body

pytestmark = pytest.mark.real


@pytest.fixture
async def provider(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncGenerator[OidcProvider]:
    async with oidc_provider(node_modules(pytestconfig), tmp_path) as running:
        yield running


def source(provider: OidcProvider, more: str = "") -> str:
    return f"{{type: OIDC, oidc: {{issuerUrl: '{provider.url}', audiences: ['{AUDIENCE}']{more}}}}}"


def rules(provider: OidcProvider) -> str:
    """Let everybody with a token add and read, and those with the scope write wipe; admins do what they like."""
    scoped = source(provider, ", scopes: [write]")
    return f"""
  - {{name: all, source: {source(provider)}, authorization: [{{type: InlineTools, tools: [add, headers]}}]}}
  - name: admins
    source: {source(provider)}
    authorization: [{{type: CEL, cel: 'has(identity.group) && identity.group == "admin"'}}]
  - {{name: writers, source: {scoped}, authorization: [{{type: InlineTools, tools: [wipe]}}]}}
"""


@pytest.mark.requirement("R17")
@pytest.mark.requirement("I15")
@pytest.mark.parametrize("old", [False, True], ids=["newest", "2025-06-18"])
async def test_an_agent_with_a_token_does_what_it_may_and_nothing_else(
    provider: OidcProvider, tmp_path: Path, old: bool
) -> None:
    made = mcp_gateway(tmp_path, policy(rules(provider)), issuers=(provider.url,))
    async with made as it, deciding(it), it.http_client(token=await provider.token()) as http:
        async with it.mcp(http, old=old) as client:
            assert {"add", "wipe"} <= {tool.name for tool in (await client.list_tools()).tools}
            answer = await client.call_tool("add", {"a": 1, "b": 2})
            assert answer.structured_content == {"result": 3}
            # The token was for the gateway, and goes no further.
            seen = await client.call_tool("headers", {})
            assert seen.structured_content is not None
            assert not {"authorization", "x-forwarded-client-cert"} & set(seen.structured_content["result"])
            with pytest.raises(MCPError, match="Insufficient scope"):
                await client.call_tool("wipe", {})
            with pytest.raises(MCPError, match="Access denied"):
                await client.call_tool("read_file", {"path": "/etc/passwd"})
            assert (await client.call_tool("add", {"a": 2, "b": 2})).structured_content == {"result": 4}
        assert it.origins["shop"].called == ["add", "headers", "add"]
    methods = [grounds.mcp_method for _, grounds in it.decided]
    assert methods[0] == "initialize" if old else "server/discover"
    assert {grounds.identity for _, grounds in it.decided} == {f"{provider.url}#agent"}


@pytest.mark.requirement("A4")
async def test_senders_without_a_token_or_scopes_learn_where_to_get_them(
    provider: OidcProvider, tmp_path: Path
) -> None:
    async with mcp_gateway(tmp_path, policy(rules(provider)), issuers=(provider.url,)) as it, deciding(it):
        metadata = f"{it.url}/.well-known/oauth-protected-resource/shop"
        async with it.http_client() as http:
            answer = await it.call(http, "add", a=1, b=2)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == (
                f'Bearer realm="default/shop", scope="write", resource_metadata="{metadata}"'
            )
            assert answer.json()["id"] == "x-7"
            document = (await http.get(metadata)).json()
            assert document["authorization_servers"] == [provider.url]
            assert document["resource"] == f"{it.url}/shop"
        async with it.http_client(token=await provider.token()) as http:
            answer = await it.call(http, "wipe")
            assert answer.status_code == 403
            assert answer.headers["www-authenticate"] == (
                'Bearer realm="default/shop", error="insufficient_scope", scope="write", '
                f'resource_metadata="{metadata}"'
            )
            assert (answer.json()["id"], answer.json()["error"]["message"]) == (
                "x-7",
                'Insufficient scope. Get a token with the scope "write".',
            )
        now = datetime.now(UTC).timestamp()
        bad: dict[str, dict[str, object]] = {
            "expired": {"exp": int(now) - 300},
            "from the future": {"nbf": int(now) + 300},
            "issued in the future": {"iat": int(now) + 300},
            "of another issuer": {"iss": "https://other.example"},
            "for somebody else": {"aud": "https://elsewhere.example"},
            "for nobody": {"aud": []},
        }
        for why, claims in bad.items():
            async with it.http_client(token=await provider.token("read", **claims)) as http:
                answer = await it.call(http, "add", a=1, b=2)
                assert answer.status_code == 401, why
                assert 'error="invalid_token"' in answer.headers["www-authenticate"], why
        for audience in (AUDIENCE, ["https://elsewhere.example", AUDIENCE]):
            async with it.http_client(token=await provider.token(aud=audience)) as http:
                assert (await it.call(http, "add", a=1, b=2)).status_code != 401
        assert it.origins["shop"].called == []


async def status(it: McpGateway, token: str, tool: str = "wipe") -> int:
    """Return 403 if the call is denied; one that is allowed is refused by the server, which knows no session."""
    async with it.http_client(token=token) as http:
        return (await it.call(http, tool)).status_code


async def test_claims_decide_and_keys_come_and_go_while_it_runs(provider: OidcProvider, tmp_path: Path) -> None:
    async with mcp_gateway(tmp_path, policy(rules(provider)), issuers=(provider.url,)) as it, deciding(it) as kept:
        before = await provider.token(group="admin")
        assert [await status(it, await provider.token(group=group)) for group in ("staff", ["admin"], "admin")] == [
            403, 403, 400,
        ]  # fmt: skip
        await provider.publish("es-new")
        after = await provider.token(group="admin")

        async def known() -> bool:
            return await status(it, after) == 400

        await eventually(known)
        assert await status(it, before) == 400
        await provider.publish("es-other")

        async def gone() -> bool:
            return await status(it, after) == 401

        await eventually(gone)
        [standing] = kept.issuers.standings()
        assert standing.ready
        assert kept.issuers.counts[provider.url, "KeysChanged"] == 2


@pytest.mark.requirement("J28")
async def test_an_issuer_that_was_never_reached_costs_its_own_policies_only(
    provider: OidcProvider, tmp_path: Path
) -> None:
    away = "https://localhost:1"
    unknown = f"{{type: OIDC, oidc: {{issuerUrl: '{away}', audiences: [a]}}}}"
    dark = f"[{{source: {unknown}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"
    policies = "---".join([policy(dark, "dark"), policy(rules(provider))])
    made = mcp_gateway(tmp_path, policies, backends=("shop", "dark"), issuers=(provider.url, away))
    async with made as it, deciding(it):
        token = await provider.token(iss=away)
        async with it.http_client(token=token) as http:
            assert (await it.call(http, "add", path="/dark")).status_code == 503
        assert await status(it, await provider.token(), "add") == 400


def unsigned(token: str) -> str:
    """Return the same token without a signature."""
    header = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    return f"{header}.{token.split('.')[1]}."


async def by_hmac(provider: OidcProvider, token: str) -> str:
    """Sign the same claims with what everybody knows: the public key."""
    [jwk] = (await provider.client.get(f"{provider.url}/jwks")).json()["keys"]
    key = RSAAlgorithm.from_jwk(jwk)
    assert isinstance(key, RSAPublicKey)
    public = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "HS256", "typ": "JWT", "kid": jwk["kid"]}
    payload = base64.urlsafe_b64decode(token.split(".")[1] + "==")
    return mint(header, payload, lambda data: hmac.new(public, data, hashlib.sha256).digest())


@pytest.mark.requirement("S5")
@pytest.mark.requirement("J42")
async def test_a_forged_token_is_rejected_without_a_reason(provider: OidcProvider, tmp_path: Path) -> None:
    made = mcp_gateway(tmp_path, policy(rules(provider)), issuers=(provider.url,))
    async with made as it, deciding(it) as kept:
        good = await provider.token()
        assert await status(it, good, "add") == 400
        stranger = signer("RS256", kid=jwt.get_unverified_header(good)["kid"], number=1)
        other = signer("RS256", kid="unknown", number=2)
        payload = base64.urlsafe_b64decode(good.split(".")[1] + "==")
        forged = {
            "without a signature": unsigned(good),
            "signed with the public key": await by_hmac(provider, good),
            "signed with another key of the same name": mint(stranger.header(), payload, stranger.sign),
            "signed with a key of another name": mint(other.header(), payload, other.sign),
            "with another payload": f"{good.split('.')[0]}.{segment({'sub': 'root'})}.{good.split('.')[2]}",
            "cut": good[:-2],
        }
        answers = {}
        for why, token in forged.items():
            async with it.http_client(token=token) as http:
                answer = await it.call(http, "add")
                said = str(split_body(answer.json())[0])
                answers[why] = (answer.status_code, answer.headers["www-authenticate"], said)
        [(code, challenge, _)] = set(answers.values())
        assert code == 401
        assert 'error="invalid_token"' in challenge
        assert kept.issuers.standings()[0].ready


@pytest.mark.requirement("J41")
async def test_a_token_elsewhere_than_in_its_header_is_none_and_no_token_is_ever_logged(
    provider: OidcProvider, tmp_path: Path
) -> None:
    made = mcp_gateway(tmp_path, policy(rules(provider)), issuers=(provider.url,))
    token = await provider.token()
    async with made as it, deciding_apart(it, "--engine", "grpcio") as (_, lines):
        async with it.http_client() as http:
            elsewhere: list[tuple[str, dict[str, str]]] = [
                (f"/shop?access_token={token}", {}),
                ("/shop", {"cookie": f"token={token}"}),
                ("/shop", {"proxy-authorization": f"Bearer {token}"}),
                ("/shop", {"authorization": f"Basic {token}"}),
            ]
            for path, headers in elsewhere:
                assert (await it.post(http, {"name": "add"}, path, headers=headers)).status_code == 401

        async def known() -> bool:
            return await status(it, token, "add") == 400

        await eventually(known)
        async with it.http_client(token=token[:-2]) as http:
            assert (await it.call(http, "add")).status_code == 401

        async def told() -> bool:
            return any("bad_token" in line.text for line in lines)

        await eventually(told)
        assert not [line.text for line in lines if token[:40] in line.text or token.split(".")[2][:20] in line.text]


@pytest.mark.requirement("J19")
async def test_scopes_match_whole_from_a_text_or_a_list(provider: OidcProvider, tmp_path: Path) -> None:
    made = mcp_gateway(tmp_path, policy(rules(provider)), issuers=(provider.url,))
    async with made as it, deciding(it):
        written: list[tuple[object, int]] = [
            ("write", 400),
            ("read write", 400),
            (["read", "write"], 400),
            ("writer", 403),
            ("write:all", 403),
            ("WRITE", 403),
            (["writer", "read write"], 403),
        ]
        assert [(each, await status(it, await provider.token("read", scp=each))) for each, _ in written] == written
