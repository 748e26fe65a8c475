"""From documents to what Envoy asks: compared with a small model of the rules, written here and nowhere else.

Nothing that is configured goes unenforced in silence: a request is checked as the rules say, on every connection
manager that serves it, or its host is not served at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from envoy.config.route.v3 import route_components_pb2 as route_pb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.certificates import server, tls_secret
from tests.support.envoy.rendered_checks import Manager, managers
from tests.support.resources.contour_documents import AUTH, ECHO, World

STATES: Final = ("unset", "disabled", "enabled", "context")
STATE: Final = st.sampled_from(STATES)
OWN: Final = st.sampled_from(["", "one", "two"])
SELDOM: Final = st.sampled_from([False, False, False, True])
OFTEN: Final = st.sampled_from([True, True, False])


@dataclass(frozen=True, slots=True, kw_only=True)
class ARoute:
    policy: str
    permit_insecure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ARoot:
    tls: bool
    fallback: bool
    own: str
    """The ExtensionService that it names, or nothing."""
    block: bool
    """Whether it says anything about authorization."""
    policy: str
    fail_open: bool
    routes: tuple[ARoute, ...]
    includes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ASetting:
    overall: str
    """The policy of global authorization, or ``none``."""
    insecure: bool
    no_permit_insecure: bool


ROUTES: Final = st.builds(ARoute, policy=STATE, permit_insecure=st.booleans())
ROOTS: Final = st.builds(
    ARoot,
    tls=OFTEN,
    fallback=SELDOM,
    own=OWN,
    block=st.booleans(),
    policy=STATE,
    fail_open=st.booleans(),
    routes=st.lists(ROUTES, min_size=1, max_size=3).map(tuple),
    includes=st.booleans(),
)
SETTINGS: Final = st.builds(
    ASetting, overall=st.sampled_from(["none", *STATES]), insecure=st.booleans(), no_permit_insecure=SELDOM
)

# --- Documents


def policy(state: str, level: str) -> str:
    return {
        "unset": "",
        "disabled": "authPolicy: {disabled: true}",
        "enabled": "authPolicy: {disabled: false}",
        "context": f"authPolicy: {{context: {{{level}: here, of: {level}}}}}",
    }[state]


def extension(name: str) -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: {name}}}
spec: {{protocol: h2c, services: [{{name: auth, port: 9443}}]}}
"""


def configuration(setting: ASetting) -> str:
    overall = ""
    if setting.overall != "none":
        inner = ", ".join(filter(None, ["extensionRef: {name: overall}", policy(setting.overall, "g")]))
        overall = f"globalExtAuth: {{{inner}}}"
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: gateway}}
spec:
  contour:
    allowInsecureAuthorization: {str(setting.insecure).lower()}
    httpproxy:
      disablePermitInsecure: {str(setting.no_permit_insecure).lower()}
      fallbackCertificate: {{name: tls, namespace: default}}
    {overall}
"""


def route_lines(routes: tuple[ARoute, ...]) -> Iterator[str]:
    yield "  routes:"
    for index, route in enumerate(routes):
        yield f"  - conditions: [{{prefix: /{index}}}]"
        yield "    services: [{name: echo, port: 80}]"
        yield f"    permitInsecure: {str(route.permit_insecure).lower()}"
        yield f"    {policy(route.policy, 'r')}"


def root_document(name: str, root: ARoot) -> str:
    lines = ["apiVersion: projectcontour.io/v1", "kind: HTTPProxy", f"metadata: {{name: {name}}}", "spec:"]
    lines += ["  virtualhost:", f"    fqdn: {name}.example"]
    if root.tls:
        lines += [f"    tls: {{secretName: tls, enableFallbackCertificate: {str(root.fallback).lower()}}}"]
    if has_block(root):
        inner = [f"extensionRef: {{name: {root.own}}}, failOpen: {str(root.fail_open).lower()}"] if root.own else []
        lines += [f"    authorization: {{{', '.join(filter(None, [*inner, policy(root.policy, 'v')]))}}}"]
    if root.includes:
        lines += ["  includes: [{name: part, conditions: [{prefix: /part}]}]"]
    return "\n".join([*lines, *route_lines(root.routes)]) + "\n"


def part_document(route: ARoute) -> str:
    head = ["apiVersion: projectcontour.io/v1", "kind: HTTPProxy", "metadata: {name: part}", "spec:"]
    return "\n".join([*head, *route_lines((route,))]) + "\n"


# --- The model


def has_block(root: ARoot) -> bool:
    return root.block or bool(root.own)


@dataclass(frozen=True, slots=True)
class Seen:
    """What becomes of a request: what the route does, and who is asked before, with which context."""

    action: str
    asked: tuple[tuple[str, str, str], ...] = ()


def levels(setting: ASetting, root: ARoot, route: ARoute) -> str | None:
    """Return the levels whose context goes with the check; None if there is no check."""
    above, letter = (root.policy, "v") if has_block(root) else (setting.overall, "g")
    disabled = (route.policy if route.policy != "unset" else above) == "disabled"
    if disabled:
        return None
    return (letter if above == "context" else "") + ("r" if route.policy == "context" else "")


def guarded(setting: ASetting, root: ARoot) -> bool:
    return bool(root.own) or setting.overall != "none"


def served(setting: ASetting, root: ARoot) -> bool:
    """Tell whether all that the root asks for can be enforced."""
    if has_block(root) and not guarded(setting, root):
        return False
    if root.own and not root.tls and not setting.insecure:
        return False
    if has_block(root) and root.tls and root.fallback and not setting.insecure:
        return False
    return not any(conflicts(setting, root, route) for route in root.routes)


def conflicts(setting: ASetting, root: ARoot, route: ARoute) -> bool:
    """Tell whether a route would be served without the check that it needs."""
    if not route.permit_insecure or setting.no_permit_insecure:
        return False
    return bool(root.own) and not setting.insecure and levels(setting, root, route) is not None


def expected(setting: ASetting, root: ARoot, route: ARoute, *, plain: bool, included: bool) -> Seen:
    broken = included and conflicts(setting, root, route)
    if plain and root.tls and (broken or not route.permit_insecure or setting.no_permit_insecure):
        return Seen("redirect")
    if broken:
        return Seen("503", ((root.own, "", failing(root)),))
    found = levels(setting, root, route) if guarded(setting, root) else None
    if found is None:
        return Seen("forward")
    return Seen("forward", ((root.own or "overall", found, failing(root)),))


def failing(root: ARoot) -> str:
    return "open" if root.own and root.fail_open else "closed"


# --- What was rendered


def seen(manager: Manager, route: route_pb.Route) -> Seen:
    asked = []
    for check in manager.checks(route):
        context = dict(check.context)
        said = "".join(letter for letter in "gvr" if context.pop(letter, "") == "here")
        assert context == ({"of": said[-1]} if said else {})
        asked.append((check.cluster.rpartition("/")[2], said, check.without_answer))
    match route.WhichOneof("action"):
        case "route":
            return Seen("forward", tuple(asked))
        case "redirect":
            return Seen("redirect", tuple(asked))
        case _:
            return Seen(str(route.direct_response.status), tuple(asked))


@pytest.mark.slow
@given(setting=SETTINGS, roots=st.lists(ROOTS, min_size=1, max_size=3), part=ROUTES)
@settings(max_examples=250, deadline=None)
def test_every_request_is_checked_as_the_documents_say(setting: ASetting, roots: list[ARoot], part: ARoute) -> None:
    named = dict(zip("abc", roots, strict=False))
    world = World(
        [
            ECHO, AUTH, extension("one"), extension("two"), extension("overall"),
            tls_secret("tls", server("web.example")), configuration(setting), part_document(part),
            *(root_document(name, root) for name, root in named.items()),
        ]
    )  # fmt: skip
    found = {manager.routes: manager for manager in managers(world.generation.rendered)}
    want: dict[tuple[str, str, str], Seen] = {}
    for name, root in named.items():
        if not served(setting, root):
            continue
        tables = ["ingress_http"]
        if root.tls:
            tables += [f"https/{name}.example", *(["ingress_fallbackcert"] if root.fallback else [])]
        paths = {f"/{index}": (route, False) for index, route in enumerate(root.routes)}
        if root.includes:
            paths["/part/0"] = (part, True)
        for table in tables:
            for path, (route, included) in paths.items():
                plain = table == "ingress_http"
                want[table, f"{name}.example", path] = expected(setting, root, route, plain=plain, included=included)
    got = {
        (table, host, path): seen(manager, taken)
        for table, manager in found.items()
        for host in manager.hosts
        if host != "*"
        for path in ("/0", "/1", "/2", "/part/0")
        if (taken := manager.route(host, path)) is not None
    }
    assert got == want
