"""The examples of AccessPolicies, through the real Envoy with real parties."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import MCPError
from tests.support.authservers.told_checks import Told
from tests.support.clients.npm import node_modules
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import McpGateway, deciding, mcp_gateway, route
from tests.support.issuers.oidc_provider import OidcProvider, oidc_provider

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples"
PATH = "/mcp-server1"


def example(name: str) -> str:
    return (EXAMPLES / name / "policy.yaml").read_text(encoding="utf-8")


@asynccontextmanager
async def served(
    root: Path, text: str, *providers: OidcProvider, more: tuple[str, ...] = ()
) -> AsyncGenerator[McpGateway]:
    issuers = tuple(provider.url for provider in providers)
    routes = tuple(route(name, {"mcp-server1": 1}) for name in ("mcp-server1", "allow"))
    made = mcp_gateway(root, text, backends=("mcp-server1",), issuers=issuers, more=more, routes=routes)
    async with made as it, deciding(it):
        yield it


async def status(it: McpGateway, tool: str, *, token: str = "", spiffe_id: str = "", path: str = PATH) -> int:
    """Return the status of a call; one that is allowed is refused by the server with 400, which knows no session."""
    async with it.http_client(token=token, spiffe_id=spiffe_id) as http:
        return (await it.call(http, tool, path=path)).status_code


@pytest.fixture
async def providers(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncGenerator[list[OidcProvider]]:
    """Run two issuers."""
    modules = node_modules(pytestconfig)
    async with AsyncExitStack() as stack:
        found = []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            found.append(await stack.enter_async_context(oidc_provider(modules, folder)))
        yield found


def of(provider: OidcProvider) -> str:
    """Return an issuer as the examples write it: without a scheme."""
    return provider.url.removeprefix("https://")


async def test_tools_for_every_sender_with_a_token(providers: list[OidcProvider], tmp_path: Path) -> None:
    one, two = providers
    text = example("oidc-tools").replace("auth-server.example.com", of(one))
    async with served(tmp_path, text, one) as it:
        async with it.http_client(token=await one.token()) as http, it.mcp(http, path=PATH) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            with pytest.raises(MCPError, match="Access denied"):
                await client.call_tool("wipe", {})
        assert await status(it, "add", token=await two.token()) == 401
        assert await status(it, "add") == 401
        # The issuer may call itself as the policy does.
        assert await status(it, "add", token=await one.token(iss=of(one))) == 400


async def test_expressions_for_two_workloads(tmp_path: Path) -> None:
    async with served(tmp_path, example("spiffe-expressions")) as it:
        ids = [f"spiffe://example.org/ns/default/sa/agent-{number}" for number in (1, 2, 10)]
        assert [await status(it, "read_file", spiffe_id=each) for each in ids] == [400, 400, 403]
        assert [await status(it, "add", spiffe_id=each) for each in ids] == [403, 403, 403]
        async with it.http_client(spiffe_id=ids[0]) as http, it.mcp(http, path=PATH) as client:
            answer = await client.call_tool("read_file", {"path": "a"})
            assert answer.structured_content == {"result": "content of a"}


async def test_two_issuers_with_audiences_of_two_kinds(providers: list[OidcProvider], tmp_path: Path) -> None:
    one, two = providers
    text = example("two-issuers").replace("auth-server1.example.com", of(one))
    async with served(tmp_path, text.replace("auth-server2.example.com", of(two)), one, two) as it:
        audiences = ("my-server", ["my-server"], ["other", "my-server"], "my-server-2", "other")
        got = {
            provider.url: [await status(it, "add", token=await provider.token(aud=each)) for each in audiences]
            for provider in providers
        }
        assert got == {one.url: [400, 403, 403, 403, 403], two.url: [403, 400, 400, 403, 403]}


async def test_an_external_service_gets_every_request(tmp_path: Path) -> None:
    asked = TestServer(mode=Mode.PATH)
    settings = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0))
    async with serve_authz(asked, settings, observer=Told()) as address:
        assert isinstance(address, TcpAddress)
        known = service("ext-authz-service", address.port).replace("port: 80}", "port: 9000}")
        async with served(tmp_path, example("external-service"), more=(known,)) as it:
            async with it.http_client() as http, it.mcp(http, path="/allow") as client:
                seen = await client.call_tool("headers", {})
                # What the service says of the request reaches the server.
                assert seen.structured_content is not None
                assert "auth-handler" in seen.structured_content["result"]
            # What it says of a denial reaches the client.
            assert await status(it, "add", path=PATH) == 401
            [grounds] = [grounds for _, grounds in it.decided if grounds.tool == "headers"]
            assert (grounds.policy, grounds.entry) == ("AccessPolicy/default/external-authz", "0:ExternalAuth")
        assert len(it.decided) > 2


@pytest.mark.requirement("R66")
async def test_an_external_service_gets_the_whole_body_or_is_not_asked(tmp_path: Path) -> None:
    seen: list[HttpRequest] = []

    def respond(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return HttpResponse(status=200, headers=(("x-from-service", "yes"),))

    async with serve_http(TcpAddress(host="127.0.0.1", port=0), respond) as address:
        assert isinstance(address, TcpAddress)
        known = service("ext-authz-service", address.port).replace("port: 80}", "port: 9000}")
        text = example("external-service").replace(
            "protocol: GRPC", "protocol: HTTP\n        forwardBody: {maxSize: 200}"
        )
        text = text.replace("protocol: HTTP", "protocol: HTTP\n        http: {path: /verify}")
        async with served(tmp_path, text, more=(known,)) as it, it.http_client() as http:
            assert (await it.call(http, "add", path=PATH, a=1)).status_code == 400
            assert (seen[0].method, seen[0].target) == ("POST", f"/verify{PATH}")
            assert b'"name": "add"' in seen[0].body
            assert (await it.call(http, "add", path=PATH, a="x" * 200)).status_code == 413
            assert len(seen) == 1
