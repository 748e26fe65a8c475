"""What Backends, Gateways and the configuration choose for the policies before a target."""

from typing import Final, NamedTuple

import pytest
from tests.support.policies.compiled import compiled, errors
from tests.support.policies.documents import BACKEND, GATEWAY, policy, rule, settings
from tests.support.policies.names import THROUGH_EDGE, TO_SHOP

from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import Compiled
from authplane.policy.rules.access_settings import NO_BODY_INSPECTION, Placement
from authplane.policy.rules.target_choices import IDLE_TIMEOUT, PLACEMENT

AUTO, CALL_OUT = Placement.AUTO, Placement.CALL_OUT
BODY_INSPECTION: Final = "authplane.dev/body-inspection"
LISTENER: Final = RequestTarget(backend=THROUGH_EDGE.backend, gateway=THROUGH_EDGE.gateway, section="admin")


def annotated(document: str, placement: str | None, key: str = PLACEMENT) -> str:
    """Return a document with an annotation."""
    text = "" if placement is None else f"{key}: '{placement}'"
    return document.replace("metadata: {", f"metadata: {{annotations: {{{text}}}, ", 1)


def problems(made: Compiled) -> list[str]:
    return [f"{ref.kind}/{ref.object_name}: {each}" for ref, found in made.problems.items() for each in found]


class Case(NamedTuple):
    backend: str | None = None
    gateway: str | None = None
    configured: str = "{}"
    want: Placement = AUTO


CASES: Final = {
    "nothing is written": Case(),
    "the configuration applies where nothing else is written": Case(configured="{placement: CallOut}", want=CALL_OUT),
    "a backend chooses for itself": Case("Auto", configured="{placement: CallOut}"),
    "a Gateway chooses for all behind it": Case(gateway="CallOut", want=CALL_OUT),
    "the stricter of the two applies, here the Gateway": Case("Auto", "CallOut", want=CALL_OUT),
    "the stricter of the two applies, here the backend": Case("CallOut", "Auto", want=CALL_OUT),
    "both say the same": Case("Auto", "Auto"),
}


@pytest.mark.parametrize("target", [THROUGH_EDGE, LISTENER], ids=["gateway", "listener"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_of_what_is_written_the_stricter_holds(case: Case, target: RequestTarget) -> None:
    made = compiled(
        annotated(BACKEND, case.backend), annotated(GATEWAY, case.gateway), settings(case.configured), policy(rule())
    )
    way = made.policies.chain(target)
    assert way is not None
    assert (way.placement, errors(made)) == (case.want, [])


def test_an_xbackend_chooses_too() -> None:
    document = annotated(BACKEND.replace("kind: Backend", "kind: XBackend").replace("v1alpha1", "v0alpha0"), "CallOut")
    way = compiled(document).policies.chain(RequestTarget(backend=Ref("XBackend", "default", "shop")))
    assert way is not None
    assert way.placement is CALL_OUT


@pytest.mark.parametrize("text", ["", "auto", "callout", "Native", "Strict"])
def test_an_unknown_placement_is_an_error_and_leaves_all_to_the_server(text: str) -> None:
    made = compiled(annotated(BACKEND, text))
    way = made.policies.chain(TO_SHOP)
    assert way is not None
    assert way.placement is CALL_OUT
    assert problems(made) == [
        f"Backend/default/shop: metadata.annotations.{PLACEMENT}: "
        f"{text!r} is not supported, so 'CallOut' applies. Use 'Auto' or 'CallOut'. [AnnotationInvalid]"
    ]


@pytest.mark.parametrize("text", ["Strict", "Native", "native"])
def test_the_annotation_that_chose_who_reads_bodies_is_no_longer_needed(text: str) -> None:
    made = compiled(BACKEND, annotated(GATEWAY, text, BODY_INSPECTION))
    way = made.policies.chain(THROUGH_EDGE)
    assert way is not None
    assert (way.placement, errors(made)) == (AUTO, [])
    assert problems(made) == [
        f"Gateway/default/edge: metadata.annotations.{BODY_INSPECTION}: {NO_BODY_INSPECTION} [AnnotationObsolete]"
    ]


@pytest.mark.parametrize("text", ["Strict", "Native", '""'])
def test_the_setting_that_chose_who_reads_bodies_is_no_longer_needed(text: str) -> None:
    made = compiled(BACKEND, settings(f"{{bodyInspection: {text}}}"))
    assert (errors(made), made.policies.closed) == ([], "")
    assert [each.partition(": ")[2] for each in problems(made)] == [
        f"spec.bodyInspection: {NO_BODY_INSPECTION} [FieldObsolete]"
    ]


def test_an_annotation_with_another_name_chooses_nothing_and_is_named() -> None:
    made = compiled(annotated(BACKEND, "CallOut").replace(PLACEMENT, "authplane.dev/Placement"))
    way = made.policies.chain(TO_SHOP)
    assert way is not None
    assert (way.placement, errors(made)) == (AUTO, [])
    assert problems(made) == [
        "Backend/default/shop: metadata.annotations.authplane.dev/Placement: Unknown annotation. "
        f"Supported: {PLACEMENT}, {IDLE_TIMEOUT}. [AnnotationUnknown]"
    ]


def test_an_unknown_value_in_the_configuration_closes_everything() -> None:
    assert compiled(BACKEND, settings("{placement: Always}"), policy(rule())).policies.closed
