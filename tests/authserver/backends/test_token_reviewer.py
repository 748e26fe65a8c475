"""A real API server reviews tokens of ServiceAccounts for the policy server; without it, nothing is allowed."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import grpc.aio
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.cli.test_policy_server import status
from tests.support.certificates import authority
from tests.support.eventually import eventually
from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.fake_api_server import FakeApiServer, reply
from tests.support.kubernetes.local_cluster import ISSUER, Cluster
from tests.support.mcp.mcp_checks import SHOP, tool_check
from tests.support.policies.documents import BACKEND, policy, settings
from tests.support.ports import free_port

from authplane.authserver.backends.runtime.policy_server import keep_policies
from authplane.authserver.backends.runtime.token_reviewer import ApiTokenReviewer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan, PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.core.secret import Secret
from authplane.policy.identity.workload_identity.reviewing import Reviewed, ReviewFailed, ReviewOutcome, ReviewToken
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import Login, Pem
from authplane.runtime.servers.listen import UnixAddress

TARGET = {key: value for key, value in SHOP.items() if key == "authplane.target"}
RBAC = "rbac.authorization.k8s.io"
Ask: TypeAlias = Callable[[str], Awaitable[int]]


@asynccontextmanager
async def deciding(folder: Path, namespace: str, client: ApiClient, *, kept: str = "60s") -> AsyncIterator[Ask]:
    """Run a policy server whose tokens a client reviews; yield what sends it a check with a token."""
    rules = f"""
  - source: {{type: ServiceAccount, serviceAccount: {{name: agent, namespace: {namespace}}}}}
    authorization: [{{type: InlineTools, tools: [add]}}]
"""
    accounts = f"{{audiences: [shop], reviewLifetime: {kept}}}"
    issuer = f"{{issuers: [{{url: '{ISSUER}', serviceAccounts: {accounts}}}]}}"
    (folder / "gateway").mkdir()
    (folder / "gateway/all.yaml").write_text(
        "\n---\n".join([BACKEND, policy(rules), settings(issuer)]), encoding="utf-8"
    )
    metrics, plan = Metrics(), PolicyPlan(folder=str(folder / "gateway"), loosen_after=0)
    listening = FrontPlan(address=UnixAddress(path=str(folder / "policy.sock")))
    async with (
        client,
        keep_policies("policy", plan, metrics, reviewer=ApiTokenReviewer(client)) as policies,
        serve_authz(
            policies.backend,
            listening,
            observer=Observer("policy", metrics.checks("policy")),
            perform=policies.perform,
        ),
        grpc.aio.insecure_channel(f"unix:{folder}/policy.sock") as channel,
    ):

        async def ask(token: str) -> int:
            request = tool_check(context=TARGET, headers={"authorization": f"Bearer {token}"})
            call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
            return status(pb.CheckResponse.FromString(await call(request.SerializeToString(), timeout=10)))

        yield ask


def account(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    cluster.objects.create(document)
    return document


def reviewing_client(cluster: Cluster, namespace: str) -> ApiClient:
    """Return the client of a ServiceAccount that may review tokens, and nothing else."""
    account(cluster, namespace, "policy-server")
    cluster.objects.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"reviews-{namespace}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:auth-delegator",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "policy-server", "namespace": namespace}],
        }
    )
    return api_client(cluster, cluster.service_account_token(namespace, "policy-server"))


@pytest.mark.real
async def test_projected_tokens_identify_accounts_until_the_account_is_gone(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    agent = account(cluster, namespace, "agent")
    account(cluster, namespace, "other")
    async with deciding(tmp_path, namespace, reviewing_client(cluster, namespace), kept="0s") as ask:
        token = cluster.service_account_token(namespace, "agent", "shop")
        assert await ask(token) == 200
        assert await ask(cluster.service_account_token(namespace, "agent", "elsewhere", "shop")) == 200
        assert await ask(cluster.service_account_token(namespace, "agent", "elsewhere")) == 401
        assert await ask(cluster.service_account_token(namespace, "agent")) == 401
        assert await ask(cluster.service_account_token(namespace, "other", "shop")) == 401
        assert await ask(token[:-4] + "AAAA") == 401
        cluster.objects.delete(agent)

        async def refused() -> bool:
            return await ask(token) == 401

        # The API server itself remembers for ten seconds.
        await eventually(refused)


@pytest.mark.real
@pytest.mark.requirement("K06", "K09")
async def test_without_the_api_server_nothing_is_allowed_and_no_token_is_logged(
    cluster: Cluster, namespace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    account(cluster, namespace, "agent")
    token = cluster.service_account_token(namespace, "agent", "shop")
    away = Login(server=f"https://127.0.0.1:{free_port()}", ca=Pem(path=str(cluster.ca_file)), token=Secret("own"))
    async with deciding(tmp_path, namespace, ApiClient(Credentials(away))) as ask:
        assert [await ask(token) for _ in range(7)] == [503] * 7
    (tmp_path / "forbidden").mkdir()
    powerless = api_client(cluster, cluster.service_account_token(namespace, "agent"))
    async with deciding(tmp_path / "forbidden", namespace, powerless) as ask:
        assert await ask(token) == 503
    said = capfd.readouterr()
    assert token not in said.out + said.err
    assert token.split(".")[2] not in said.out + said.err


ANSWERS: dict[str, tuple[list[bytes], ReviewOutcome]] = {
    "granted": (
        reply(
            201,
            json.dumps({"status": {"authenticated": True, "user": {"username": "u"}, "audiences": ["shop"]}}).encode(),
        ),
        Reviewed(authenticated=True, user="u", audiences=("shop",)),
    ),
    "denied": (reply(201, b'{"status": {"error": "secret.token is bad"}}'), Reviewed(authenticated=False)),
    "true as a text": (reply(201, b'{"status": {"authenticated": "true"}}'), Reviewed(authenticated=False)),
    "forbidden": (
        reply(403, b'{"message": "secret.token"}'),
        ReviewFailed("the API server answered 403 to a token review"),
    ),
    "broken": (reply(500), ReviewFailed("the API server answered 500 to a token review")),
    "no review": (reply(201, b"[]"), ReviewFailed("the API server sent no token review")),
    "a user that is no text": (
        reply(201, b'{"status": {"authenticated": true, "user": {"username": 3}}}'),
        ReviewFailed("the API server sent no token review"),
    ),
    "no answer": ([], ReviewFailed("the API server does not answer")),
}


@pytest.mark.requirement("K06", "K09")
@pytest.mark.parametrize(("answer", "want"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_answers(answer: list[bytes], want: ReviewOutcome, tmp_path: Path) -> None:
    effect = ReviewToken(token=Secret("secret.token"), audiences=("shop",))
    async with FakeApiServer(lambda _: answer).serve(tmp_path) as api:
        login = Login(server=api.url, ca=Pem(content=Secret(authority().certificate)))
        async with ApiClient(Credentials(login)) as client:
            outcome = await ApiTokenReviewer(client).review(effect)
        assert outcome == want
        assert "secret.token" not in repr(outcome)
        assert json.loads(api.asked[0].body)["spec"] == {"token": "secret.token", "audiences": ["shop"]}


@pytest.mark.requirement("K06")
async def test_an_api_server_that_is_slow_has_not_answered(tmp_path: Path) -> None:
    effect = ReviewToken(token=Secret("t"), audiences=("shop",))
    head = b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\n"
    async with FakeApiServer(lambda _: [head] * 2).serve(tmp_path) as api:
        login = Login(server=api.url, ca=Pem(content=Secret(authority().certificate)))
        async with ApiClient(Credentials(login)) as client:
            outcome = await ApiTokenReviewer(client, limit=0.0).review(effect)
    assert outcome == ReviewFailed("the API server did not review the token in time")
