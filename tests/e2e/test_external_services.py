"""External services behind the real Envoy: what clients hear of them, and whom we take for them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf import text_format
from tests.support.authservers.asked_services import Recording
from tests.support.authservers.told_checks import Told
from tests.support.certificates import authority, indented, server
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import McpGateway, deciding, mcp_gateway, policy
from tests.support.grpc.shop_servers import authorizing

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.devkit.identities.throwaway_certificates import create_authority
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.runtime.servers.listen import TcpAddress, TlsPaths

pytestmark = pytest.mark.real

ASKED = (
    "[{authorization: [{type: ExternalAuth, externalAuth: {protocol: GRPC, backendRef: {name: authz, port: 9000}}}]}]"
)
TLS_POLICY = """
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: authz}
spec:
  targetRefs: [{group: "", kind: Service, name: authz}]
  validation:
    hostname: authz.example
    caCertificateRefs: [{group: "", kind: ConfigMap, name: trusted}]
"""
COOKIES = (("set-cookie", "a=1"), ("set-cookie", "b=2"))


def trusted(certificate: bytes) -> str:
    return f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: trusted}}
data:
  ca.crt: |
{indented(certificate)}
"""


@asynccontextmanager
async def running(root: Path, answers: Recording) -> AsyncGenerator[tuple[McpGateway, httpx2.AsyncClient]]:
    """Run a gateway whose policy asks a service over TLS."""
    pair = server("authz.example")
    (root / "tls.crt").write_bytes(pair.certificate)
    (root / "tls.key").write_bytes(pair.key.reveal())
    tls = TlsPaths(certificate=str(root / "tls.crt"), key=str(root / "tls.key"))
    settings = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0), tls=tls)
    async with serve_authz(answers, settings, observer=Told()) as address:
        assert isinstance(address, TcpAddress)
        known = service("authz", address.port).replace("port: 80}", "port: 9000}")
        more = (known, TLS_POLICY, trusted(authority().certificate))
        gateway = mcp_gateway(root, policy(ASKED), more=more)
        async with gateway as it, deciding(it), it.http_client() as http:
            yield it, http


async def test_a_client_hears_what_the_service_says(tmp_path: Path) -> None:
    def say(request: Request) -> Decision:
        match request.values("x-want"):
            case ("sign-in",):
                where = ("location", "https://sso.example/?next=%2Fshop")
                return Deny(http_status=302, headers=(where, *COOKIES), rule="x")
            case ("words",):
                told = (("content-type", "text/html"), ("www-authenticate", 'Basic realm="x"'))
                return Deny(http_status=401, headers=told, body="<p>who are you?", rule="x")
            case _:
                return Allow(response_headers=(("set-cookie", "c=3"), ("x-policy", "seen")))

    async with running(tmp_path, Recording(say)) as (it, http):

        async def ask(want: str) -> httpx2.Response:
            http.headers["x-want"] = want
            http.cookies.clear()
            return await it.call(http, "add")

        answer = await ask("sign-in")
        assert (answer.status_code, answer.headers["location"]) == (302, "https://sso.example/?next=%2Fshop")
        assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
        assert answer.json()["id"] == "x-7"
        answer = await ask("words")
        assert (answer.status_code, answer.text) == (401, "<p>who are you?")
        assert answer.headers["content-type"] == "text/html"
        assert answer.headers["www-authenticate"] == 'Basic realm="x"'
        # The server behind knows no session, and says so with 400: the request was let through.
        answer = await ask("in")
        assert (answer.status_code, answer.headers["x-policy"]) == (400, "seen")
        assert answer.headers.get_list("set-cookie") == ["c=3"]


@pytest.mark.requirement("S22")
async def test_a_service_that_cannot_be_verified_is_not_asked_until_it_can(tmp_path: Path) -> None:
    answers = Recording()
    stranger = create_authority("stranger", now=datetime.now(UTC), lifetime=timedelta(days=1)).certificate
    async with running(tmp_path, answers) as (it, http):
        text = (it.folder / "gateway.yaml").read_text(encoding="utf-8")

        async def gives(status: int) -> bool:
            return (await it.call(http, "add")).status_code == status

        assert await gives(400)
        it.write("gateway.yaml", text.replace(trusted(authority().certificate), trusted(stranger)))
        await eventually(lambda: gives(503))
        asked = len(answers.requests)
        assert await gives(503)
        assert len(answers.requests) == asked
        it.write("gateway.yaml", text)
        await eventually(lambda: gives(400))


def option(value: str, more: str = "") -> str:
    return f'headers {{ header {{ key: "X-User" value: "{value}" }} {more} }}'


APPENDED = option("alice", "append { value: true }")
SAID = {
    "nothing more": option("alice"),
    "append": APPENDED,
    "append an empty value": option("", "append { value: true }"),
    "append twice": APPENDED + option("staff", "append { value: true }"),
    "append_action append": option("alice", "append_action: APPEND_IF_EXISTS_OR_ADD"),
    "append_action add if absent": option("alice", "append_action: ADD_IF_ABSENT"),
    "append_action overwrite if exists": option("alice", "append_action: OVERWRITE_IF_EXISTS"),
    "a value that no proxy can send": option("Zo\u00eb"),
}
ARRIVES = {"append twice": ("alice,staff",), "append an empty value": ("",), "a value that no proxy can send": ()}


@pytest.mark.requirement("E02")
async def test_what_a_grpc_service_sets_replaces_what_the_client_sent(tmp_path: Path) -> None:
    with authorizing() as service_:

        def decide(asked: pb.CheckRequest) -> pb.CheckResponse:
            said = SAID[asked.attributes.request.http.headers["x-want"]]
            return text_format.Parse(f"status {{}} ok_response {{ {said} }}", pb.CheckResponse())

        service_.decide = decide
        port = int(service_.target.rpartition(":")[2])
        known = service("authz", port).replace("port: 80}", "port: 9000}")
        gateway = mcp_gateway(tmp_path, policy(ASKED), more=(known,))
        async with gateway as it, deciding(it), it.http_client() as http:
            for want in SAID:
                for spoofed in ((), (("x-user", "root"),), (("x-user", "root"), ("X-User", "admin"))):
                    http.headers = httpx2.Headers([("x-want", want), *spoofed])
                    assert (await it.call(http, "add")).status_code == 400
                    [seen] = it.origins["shop"].headers
                    it.origins["shop"].headers.clear()
                    users = tuple(value for name, value in seen if name == "x-user")
                    assert (want, spoofed, users) == (want, spoofed, ARRIVES.get(want, ("alice",)))
