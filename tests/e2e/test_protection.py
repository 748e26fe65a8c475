"""Worlds drawn at random, pushed to one running Envoy and asked by requests: each is checked as the documents say.

The worlds and what must become of them are those of `tests.controlplane.render.test_protection_of_documents`.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

import pytest
import pytest_asyncio
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.controlplane.render.test_protection_of_documents import (
    ROOTS,
    ROUTES,
    SETTINGS,
    ARoot,
    ARoute,
    ASetting,
    configuration,
    expected,
    part_document,
    root_document,
    served,
)
from tests.support.authservers.asked_services import Recording, asked
from tests.support.certificates import server, tls_secret
from tests.support.envoy.pushed_envoy import Answer, Pushed, pushed
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service

from authplane.devkit.local.echo_origin import serve_echo
from authplane.policy.check.decision import Decision, Deny
from authplane.policy.check.request import Request
from authplane.runtime.servers.listen import TcpAddress

SERVICES: Final = ("one", "two", "overall")
WORLDS: Final = 16
SEED: Final = 4
DRAWN: Final = 100
Requests: TypeAlias = dict[tuple[str, str, str], str]
"""What becomes of each request, by where it comes in, host and path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AWorld:
    """Settings, roots by name, and the part that some of them include."""

    setting: ASetting
    roots: dict[str, ARoot]
    part: ARoute

    def wanted(self) -> Requests:
        """Return what must become of requests."""
        found = {}
        for name, root in self.roots.items():
            paths = {f"/{index}": (route, False) for index, route in enumerate(root.routes)}
            paths |= {"/part/0": (self.part, True)} if root.includes else {}
            for door in ("plain", "named", "nameless"):
                for path, (route, included) in paths.items():
                    found[door, f"{name}.example", path] = self._wanted(door, root, route, included=included)
        return found

    def _wanted(self, door: str, root: ARoot, route: ARoute, *, included: bool) -> str:
        reachable = door == "plain" or (root.tls and (door == "named" or root.fallback))
        if not served(self.setting, root) or not reachable:
            return "not served"
        seen = expected(self.setting, root, route, plain=door == "plain", included=included)
        if not seen.asked:
            return seen.action
        [(who, context, _)] = seen.asked
        return f"denied by {who} with {context or 'nothing'}"


def drawn() -> list[AWorld]:
    """Draw worlds, always the same, and keep those that have the most to show."""
    worlds: list[AWorld] = []

    # Derandomized, they would change with the name of any module that the arguments are from.
    @seed(SEED)
    @settings(max_examples=DRAWN, derandomize=False, database=None, deadline=None, phases=[Phase.generate])
    @given(setting=SETTINGS, roots=st.lists(ROOTS, min_size=2, max_size=3), part=ROUTES)
    def draw(setting: ASetting, roots: list[ARoot], part: ARoute) -> None:
        worlds.append(AWorld(setting=setting, roots=dict(zip("abc", roots, strict=False)), part=part))

    draw()
    shown: set[tuple[str, str]] = set()
    kept: list[AWorld] = []
    while len(kept) < WORLDS:
        best = max(worlds, key=lambda world: len(features(world) - shown))
        worlds.remove(best)
        kept.append(best)
        shown |= features(best)
    return kept


def features(world: AWorld) -> set[tuple[str, str]]:
    return {(door, outcome) for (door, _, _), outcome in world.wanted().items()}


def deny(name: str) -> Recording:
    """Return a service that always denies, and says who it is and what it was told."""

    def say(request: Request) -> Decision:
        said = "".join(letter for letter in "gvr" if request.context.get(letter) == "here")
        assert request.context.get("of") == (said[-1] if said else None)
        return Deny(http_status=403, headers=(("x-asked", name), ("x-context", said or "nothing")), rule="no")

    return Recording(say=say)


def extension(name: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: {name}}}
spec: {{protocol: h2c, services: [{{name: {name}, port: 80}}], timeoutPolicy: {{response: 4s}}}}
"""


def outcome(answer: Answer) -> str:
    """Say what became of a request in the words of `AWorld.wanted`."""
    if "x-asked" in answer.headers:
        return f"denied by {answer.headers['x-asked']} with {answer.headers['x-context']}"
    return {200: "forward", 301: "redirect", 0: "not served", 404: "not served", 421: "not served"}.get(
        answer.status, str(answer.status)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Envoy, and the services that every world refers to."""

    envoy: Pushed
    common: list[str]

    def documents(self, world: AWorld) -> list[str]:
        listeners = f"""spec:
  listeners:
    http: {{address: 127.0.0.1, port: {self.envoy.http}}}
    https: {{address: 127.0.0.1, port: {self.envoy.https}}}
"""
        return [
            *self.common,
            configuration(world.setting).replace("spec:\n", listeners, 1),
            part_document(world.part),
            *(root_document(name, root) for name, root in world.roots.items()),
        ]

    async def ask(self, door: str, host: str, path: str) -> str:
        if door == "plain":
            found = outcome(await self.envoy.plain(host, path))
            # A host that is withdrawn says so; no route of these worlds answers so by itself.
            return "not served" if found == "503" else found
        return outcome(await self.envoy.secure(host, path, sni=host if door == "named" else None))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[False, True], ids=["whole-state", "delta"])
async def stage(request: pytest.FixtureRequest) -> AsyncGenerator[Stage]:
    async with AsyncExitStack() as stack:
        echo = await stack.enter_async_context(serve_echo(TcpAddress(host="127.0.0.1", port=0)))
        assert isinstance(echo, TcpAddress)
        common = [tls_secret("tls", server("web.example")), service("echo", echo.port)]
        for name in SERVICES:
            common += [service(name, await stack.enter_async_context(asked(deny(name)))), extension(name)]
        envoy = await stack.enter_async_context(pushed(delta=request.param))
        yield Stage(envoy=envoy, common=common)


CHOSEN: Final = drawn()


def test_the_worlds_have_all_to_show_that_matters() -> None:
    shown = {feature for world in CHOSEN for feature in features(world)}
    for door in ("plain", "named", "nameless"):
        outcomes = {outcome for each, outcome in shown if each == door}
        assert {"forward", "not served"} <= outcomes
        for who in SERVICES:
            assert any(outcome.startswith(f"denied by {who}") for outcome in outcomes), (door, who)
    assert ("plain", "redirect") in shown


@pytest.mark.real
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", range(WORLDS))
async def test_every_request_is_checked_by_the_configured_service(stage: Stage, number: int) -> None:
    world = CHOSEN[number]
    wanted = world.wanted()
    found: Requests = {}
    stage.envoy.publish(stage.documents(world))

    async def as_wanted() -> bool:
        accepted = stage.envoy.accepted()
        found.update({request: await stage.ask(*request) for request in wanted})
        # Envoy says that it accepts a listener shortly before it serves by it.
        return accepted and found == wanted

    try:
        await eventually(as_wanted)
    except TimeoutError:
        assert found == wanted
