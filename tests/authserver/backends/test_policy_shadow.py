"""Policies of a folder that are tried out, and then enforced."""

from datetime import UTC, datetime
from pathlib import Path

from tests.support.authservers.answers import answer
from tests.support.eventually import eventually
from tests.support.mcp.mcp_checks import tool_check
from tests.support.policies.documents import BACKEND, OPEN, policy, rule

from authplane.authserver.backends.runtime.policy_server import KeptPolicies, keep_policies
from authplane.authserver.plan.server_plan import PolicyPlan
from authplane.authserver.records.runtime.metrics import CheckMetrics, Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.policy.check.decision import Allow, Deny

ADD = tool_check("add", context={"authplane.target": "Backend/default/shop"})


def write(folder: Path, mode: str) -> None:
    draft = folder / ".policy.yaml"
    draft.write_text(f"{OPEN}---{BACKEND}---{policy(rule(), more=f'  mode: {mode}')}", encoding="utf-8")
    draft.replace(folder / "policy.yaml")


def kind(kept: KeptPolicies) -> type:
    made = answer(kept.backend, ADD.SerializeToString(), datetime.now(UTC))
    Observer("policy", CheckMetrics(), verdicts=(kept.counts.record,)).passed(made, 0.0)
    return type(made.decision)


async def test_a_policy_is_tried_out_counted_and_then_enforced_without_a_restart(tmp_path: Path) -> None:
    metrics = Metrics()
    write(tmp_path, "Shadow")
    async with keep_policies("policy", PolicyPlan(folder=str(tmp_path), loosen_after=0), metrics, quiet=True) as kept:
        assert (kind(kept), kept.targets()) == (Allow, 0)
        labels = 'backend="policy",decision="allow",outcome="deny",policy="AccessPolicy/default/p"'
        assert f"authplane_shadow_decisions_total{{{labels}}} 1.0" in metrics.text().decode()
        write(tmp_path, "Enforce")

        async def enforced() -> bool:
            return kind(kept) is Deny

        await eventually(enforced)
        assert kept.targets() == 1
        write(tmp_path, "Shadow")

        async def tried_again() -> bool:
            return kind(kept) is Allow

        await eventually(tried_again)
