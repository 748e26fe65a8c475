"""Services that get copies of requests."""

from typing import NamedTuple

import pytest
from tests.support.resources.contour_documents import ECHO, EXTENSION, PROXY, World, world

from authplane.controlplane.graph.model.route_model import Action, Forward, Respond, Target
from authplane.controlplane.graph.model.upstreams import Mirror

ROUTES = "  routes:\n  - services:\n    - {name: echo, port: 80}\n"
COPY = ECHO.replace("echo", "copy")
TO_ECHO = Target(cluster="service/default/echo/80", weight=1)


def mirrored(*services: str) -> World:
    routes = f"  routes:\n  - services: [{', '.join(services)}]\n"
    return world(proxy=PROXY.replace(ROUTES, routes), copy=COPY)


def action_of(made: World) -> Action:
    secure = made.secure()
    assert secure is not None, made.generation.findings
    [route] = secure.host.routes
    return route.action


class Case(NamedTuple):
    weight: str
    percent: int
    warnings: int = 0


WEIGHTS = {
    "no weight copies everything": Case("", 100),
    "zero copies everything, as in Contour": Case(", weight: 0", 100),
    "one percent": Case(", weight: 1", 1),
    "every request": Case(", weight: 100", 100),
    "more than every request": Case(", weight: 101", 100, warnings=1),
}


@pytest.mark.parametrize("case", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_the_weight_of_a_mirror_is_the_percentage_of_requests_that_it_gets_copies_of(case: Case) -> None:
    made = mirrored("{name: echo, port: 80}", f"{{name: copy, port: 80, mirror: true{case.weight}}}")
    want = Forward(targets=(TO_ECHO,), mirror=Mirror(cluster="service/default/copy/80", percent=case.percent))
    assert action_of(made) == want
    assert (made.problems("HTTPProxy"), len(made.warnings("HTTPProxy"))) == ([], case.warnings)


def test_the_weight_of_a_mirror_is_no_share() -> None:
    made = mirrored("{name: copy, port: 80, mirror: true, weight: 50}", "{name: echo, port: 80}")
    want = Forward(targets=(TO_ECHO,), mirror=Mirror(cluster="service/default/copy/80", percent=50))
    assert action_of(made) == want


def test_a_mirror_alone_gives_no_response() -> None:
    made = mirrored("{name: echo, port: 80, mirror: true, weight: 100}")
    assert action_of(made) == Respond(status=503)


def test_two_mirrors_withdraw_the_host() -> None:
    made = mirrored(
        "{name: echo, port: 80}", "{name: copy, port: 80, mirror: true}", "{name: copy, port: 80, mirror: true}"
    )
    assert made.secure() is None
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["OnlyOneMirror"]


def test_a_mirror_that_does_not_exist_costs_the_copies_and_is_an_error() -> None:
    made = mirrored("{name: echo, port: 80}", "{name: gone, port: 80, mirror: true}")
    assert action_of(made) == Forward(targets=(TO_ECHO,))
    assert [reason for reason, _ in made.problems("HTTPProxy")] == ["ServiceUnresolvedReference"]


def test_header_policies_of_a_mirror_are_named_as_ignored() -> None:
    made = mirrored("{name: echo, port: 80}", "{name: copy, port: 80, mirror: true, requestHeadersPolicy: {}}")
    assert [reason for reason, _ in made.warnings("HTTPProxy")] == ["IgnoredField"]


def test_a_mirror_among_the_targets_of_an_extension_service_never_decides() -> None:
    target = "  - {name: auth, port: 9443}\n"
    assert target in EXTENSION
    made = world(extension=EXTENSION.replace(target, target.replace("}", ", mirror: true}")))
    assert [reason for reason, _ in made.problems("ExtensionService")] == ["FieldNotEnforced"]
    assert made.secure() is None
