"""A server that can ask a cluster about tokens; the cluster here is one that a test answers for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.cli.test_policy_server import status
from tests.support.issuers.workload_issuers import WorkloadIssuers, workload_issuers
from tests.support.mcp.mcp_checks import SHOP, tool_check
from tests.support.policies.documents import BACKEND, policy, settings

from authplane.authserver.backends.runtime.policy_server import keep_policies
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan, PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.policy.identity.workload_identity.reviewing import Reviewed, ReviewFailed, ReviewOutcome, ReviewToken
from authplane.runtime.servers.listen import UnixAddress

RULES = """
  - source: {type: ServiceAccount, serviceAccount: {name: agent}}
    authorization: [{type: InlineTools, tools: [add]}]
"""
TARGET = {key: value for key, value in SHOP.items() if key == "authplane.target"}


@dataclass
class Cluster:
    """Knows some tokens, and notes what it is asked."""

    users: dict[str, str] = field(default_factory=dict)
    down: bool = False
    asked: list[ReviewToken] = field(default_factory=list)

    async def review(self, effect: ReviewToken) -> ReviewOutcome:
        self.asked.append(effect)
        if self.down:
            return ReviewFailed("it does not answer")
        user = self.users.get(effect.token.reveal())
        return Reviewed(authenticated=user is not None, user=user or "", audiences=effect.audiences if user else ())


def write(folder: Path, issuers: WorkloadIssuers) -> None:
    entries = ", ".join(issuers.settings(verification="TokenReview"))
    text = "\n---\n".join([BACKEND, policy(RULES), settings(f"{{issuers: [{entries}]}}")])
    folder.mkdir()
    (folder / "all.yaml").write_text(text, encoding="utf-8")


async def test_the_cluster_reviews_a_token_once_and_its_answer_applies(tmp_path: Path) -> None:
    cluster, socket = Cluster(), tmp_path / "policy.sock"
    async with workload_issuers(tmp_path) as issuers:
        write(tmp_path / "gateway", issuers)
        known, gone = issuers.projected(), issuers.projected(jti="gone")
        cluster.users[known] = "system:serviceaccount:default:agent"
        metrics, plan = Metrics(), PolicyPlan(folder=str(tmp_path / "gateway"), loosen_after=0)
        async with keep_policies("policy", plan, metrics, reviewer=cluster) as kept:
            # The keys of an issuer whose tokens are reviewed are nobody's business.
            assert kept.issuers.standings() == ()
            listening = FrontPlan(address=UnixAddress(path=str(socket)))
            observer = Observer("policy", metrics.checks("policy"))
            async with (
                serve_authz(kept.backend, listening, observer=observer, perform=kept.perform),
                grpc.aio.insecure_channel(f"unix:{socket}") as channel,
            ):

                async def ask(token: str) -> int:
                    request = tool_check(context=TARGET, headers={"authorization": f"Bearer {token}"})
                    call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
                    answer = await call(request.SerializeToString(), timeout=5)
                    return status(pb.CheckResponse.FromString(answer))

                assert [await ask(known) for _ in range(3)] == [200] * 3
                assert [await ask(gone) for _ in range(3)] == [401] * 3
                assert [each.token.reveal() for each in cluster.asked] == [known, gone]
                assert cluster.asked[0].audiences == ("shop",)
                cluster.down = True
                assert await ask(known) == 200
                assert await ask(issuers.projected(jti="new")) == 503
                # What nobody there can have made, it is not asked about.
                assert await ask(issuers.svid()) == 401
                assert len(cluster.asked) == 3
