"""The ways on which requests come to what policies protect."""

from dataclasses import replace
from typing import Final

from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, GATEWAY, SPIFFE, policy, rule
from tests.support.policies.names import EDGE, SHOP, TO_SHOP

from authplane.core.envoy_releases import OLDEST
from authplane.core.names import Ref
from authplane.policy.attached.attachments import Policies, PolicyChain, RequestTarget
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.policy.placement.placement_model import Choices, Decider, Plan
from authplane.policy.placement.placement_plan import place_chain
from authplane.policy.placement.plan_cache import Plans
from authplane.policy.placement.target_routes import TargetRoutes
from authplane.policy.rules.access_settings import Composition, Placement
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.sources.document_versions import Library

WEB, ADMIN = (RequestTarget(backend=SHOP, gateway=EDGE, section=each) for each in ("web", "admin"))
SERVICE: Final = RequestTarget(gateway=EDGE, section="web")
REACHED: Final = dict.fromkeys((WEB, ADMIN, SERVICE))


def targets(aim: PolicyTarget, reached: dict[RequestTarget, None] = REACHED) -> list[RequestTarget]:
    passages = TargetRoutes(policies(BACKEND, GATEWAY, policy(rule())), reached)
    return [each.target for each in passages.past(aim)]


def test_a_backend_a_gateway_and_a_listener_each_have_the_ways_past_them() -> None:
    assert targets(PolicyTarget(SHOP)) == [WEB, ADMIN]
    assert targets(PolicyTarget(EDGE)) == [WEB, ADMIN, SERVICE]
    assert targets(PolicyTarget(EDGE, "admin")) == [ADMIN]


def test_what_nothing_leads_to_is_looked_at_alone() -> None:
    assert targets(PolicyTarget(SHOP), {}) == [TO_SHOP]
    assert targets(PolicyTarget(EDGE, "web"), {}) == [SERVICE]


def test_what_is_not_there_has_no_ways() -> None:
    assert targets(PolicyTarget(Ref("Backend", "default", "none"))) == []
    assert targets(PolicyTarget(EDGE, "none")) == []
    assert list(TargetRoutes(policies(BACKEND), dict.fromkeys([RequestTarget()]))) == []


def test_every_target_that_something_leads_to_has_its_plan() -> None:
    made = policies(BACKEND, GATEWAY, policy(rule()))
    found = list(TargetRoutes(made, REACHED))
    assert [(each.target, each.plan.decider) for each in found] == [
        (WEB, Decider.ENVOY),
        (ADMIN, Decider.ENVOY),
        (SERVICE, Decider.NOBODY),
    ]
    assert [each.plan for each in found] == [place_chain(each.chain, made.settings, Choices()) for each in found]


def way_to(made: Policies) -> PolicyChain:
    chain = made.chain(TO_SHOP)
    assert chain is not None
    return chain


def planned(plans: Plans, made: Policies, choices: Choices | None = None) -> Plan:
    return plans.ensure(way_to(made), made.settings, choices or Choices())


def test_a_plan_is_made_again_only_if_something_changes_that_it_depends_on() -> None:
    library, compiler, plans = Library(), PolicyCompiler(), Plans()

    def compiled(**files: str) -> Policies:
        for name, text in files.items():
            library.changed(f"{name}.yaml", text.encode())
        return compiler.compile(library.current().resources).policies

    first = planned(plans, compiled(a=BACKEND, p=policy(rule())))
    beside = compiled(b=BACKEND.replace("{name: shop}", "{name: other}"))
    assert planned(plans, beside) is first
    chosen = compiled(
        a=BACKEND.replace("{name: shop}", "{name: shop, annotations: {authplane.dev/placement: CallOut}}")
    )
    assert planned(plans, chosen).decider is Decider.SERVER
    assert planned(plans, compiled(a=BACKEND)) is first
    shadow = policy(rule(SPIFFE, "[{type: CEL, cel: 'has(identity.a) && identity.a.exists(x, x == 1.0)'}]"), name="q")
    assert planned(plans, compiled(q=f"{shadow}  mode: Shadow")) is not first
    changed = compiled(p=policy(rule(authorization="[{type: InlineTools, tools: [sub]}]")))
    assert planned(plans, changed) == place_chain(way_to(changed), changed.settings, Choices())
    assert planned(plans, changed) is not planned(plans, changed, Choices(keys=frozenset()))


def test_a_plan_is_known_again_only_for_a_way_that_is_the_same_in_all_it_depends_on() -> None:
    made = policies(BACKEND, GATEWAY, policy(rule(authorization="[{type: CEL, cel: 'request.path == \"/a\"'}]")))
    chain = made.chain(WEB)
    assert chain is not None
    plans = Plans()
    known = plans.ensure(chain, made.settings, Choices())
    assert plans.ensure(replace(chain), made.settings, Choices()) is known
    changed = (
        (replace(chain, guarded=not chain.guarded), made.settings, Choices()),
        (replace(chain, is_mcp=not chain.is_mcp), made.settings, Choices()),
        (replace(chain, reads_mcp=not chain.reads_mcp), made.settings, Choices()),
        (replace(chain, placement=Placement.CALL_OUT), made.settings, Choices()),
        (replace(chain, attachments=chain.attachments[1:]), made.settings, Choices()),
        (chain, replace(made.settings, composition=Composition.ANY), Choices()),
        (chain, made.settings, Choices(envoy=OLDEST)),
        (chain, made.settings, Choices(keys=frozenset())),
    )
    for each in changed:
        found = plans.ensure(*each)
        assert found is not known
        assert found == place_chain(*each)
