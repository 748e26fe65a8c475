"""The policies of a folder while they change."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.policies.documents import BACKEND, policy, settings
from tests.support.policies.mcp_requests import call

from authplane.authserver.backends.runtime.policy_server import KeptPolicies, keep_policies
from authplane.authserver.plan.server_plan import PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.verdicts.verdict import Verdict

MANY = 1500
SHOP = {"authplane.target": "Backend/default/shop"}


def write(folder: Path, name: str, text: str) -> None:
    draft = folder / f".{name}"
    draft.write_text(text, encoding="utf-8")
    draft.replace(folder / name)


def decide(kept: KeptPolicies, request: Request) -> Decision:
    made = kept.backend.decide(request, datetime.now(UTC))
    assert isinstance(made, Verdict)
    return made.decision


@pytest.mark.slow
@pytest.mark.requirement("C17")
async def test_thousands_of_expressions_are_compiled_while_the_old_ones_decide(tmp_path: Path) -> None:
    backends = [BACKEND.replace("name: shop}", f"name: shop{number}}}") for number in range(MANY)]
    policies = [
        policy(
            f"[{{authorization: [{{type: CEL, cel: 'request.mcp.tool_name == \"tool{number}\"'}}]}}]",
            name=f"p{number}",
            targets=f"[{{kind: Backend, name: shop{number}}}]",
        )
        for number in range(MANY)
    ]
    write(tmp_path, "many.yaml", "\n---\n".join([*backends, *policies]))
    write(
        tmp_path,
        "one.yaml",
        "\n---\n".join([BACKEND, policy("[{authorization: [{type: InlineTools, tools: [add]}]}]")]),
    )
    add, other = call("add", context=SHOP), call("add", context={"authplane.target": "Backend/default/new"})
    async with keep_policies("policy", PolicyPlan(folder=str(tmp_path), loosen_after=0), Metrics(), quiet=True) as kept:
        assert isinstance(decide(kept, add), Allow)
        assert isinstance(decide(kept, other), Unavailable)
        # Another setting: every expression is compiled anew.
        write(tmp_path, "settings.yaml", settings("{trustDomain: example.org, unprotectedBackends: Allow}"))
        write(tmp_path, "new.yaml", BACKEND.replace("name: shop}", "name: new}"))
        clock = asyncio.get_running_loop().time
        gaps, last = [], clock()

        async def known() -> bool:
            nonlocal last
            gaps.append(clock() - last)
            last = clock()
            assert isinstance(decide(kept, add), Allow)
            return isinstance(decide(kept, other), Allow)

        begun = clock()
        await eventually(known)
        # Nobody waited for as long as it took.
        assert max(gaps) < (clock() - begun) / 2


@pytest.mark.slow
async def test_an_issuer_is_followed_as_long_as_a_policy_names_it(tmp_path: Path) -> None:
    def written(url: str) -> str:
        source = f"{{type: OIDC, oidc: {{issuerUrl: '{url}', audiences: [a]}}}}"
        return policy(f"[{{source: {source}, authorization: [{{type: InlineTools, tools: [add]}}]}}]")

    write(tmp_path, "backend.yaml", BACKEND)
    write(tmp_path, "policy.yaml", written("https://localhost:1"))
    async with keep_policies("policy", PolicyPlan(folder=str(tmp_path), loosen_after=0), Metrics(), quiet=True) as kept:

        async def tried() -> bool:
            return not kept.obstacle()

        await eventually(tried)
        assert [(each.issuer, each.ready) for each in kept.issuers.standings()] == [("https://localhost:1", False)]
        write(tmp_path, "policy.yaml", written("https://localhost:2"))

        async def other() -> bool:
            return [each.issuer for each in kept.issuers.standings()] == ["https://localhost:2"]

        await eventually(other)
        (tmp_path / "policy.yaml").unlink()

        async def none() -> bool:
            return kept.issuers.standings() == ()

        await eventually(none)
        assert isinstance(decide(kept, call("add", context=SHOP)), Deny)


async def test_who_can_allow_nothing_says_which_file_it_waits_for(tmp_path: Path) -> None:
    write(tmp_path, "backend.yaml", BACKEND)
    write(tmp_path, "policy.yaml", "kind: AccessPolicy\n  a: b: c")
    plan = PolicyPlan(folder=str(tmp_path), loosen_after=0)
    async with keep_policies("policy", plan, Metrics(), quiet=True) as kept:
        why = f"{tmp_path}/policy.yaml may contain a policy and cannot be read"
        assert kept.obstacle() == f"the policy server cannot allow any request: {why}"
