"""What Backends, Gateways and the configuration choose for the policies before a target."""

from typing import Final, NamedTuple

import pytest
from tests.support.policies.compiled import compiled, errors
from tests.support.policies.documents import BACKEND, GATEWAY, policy, rule, settings
from tests.support.policies.names import THROUGH_EDGE, TO_SHOP

from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import Compiled
from authplane.policy.rules.access_settings import BodyInspection, Placement
from authplane.policy.rules.target_choices import BODY_INSPECTION, IDLE_TIMEOUT, PLACEMENT

AUTO, CALL_OUT = Placement.AUTO, Placement.CALL_OUT
STRICT, NATIVE = BodyInspection.STRICT, BodyInspection.NATIVE
LISTENER: Final = RequestTarget(backend=THROUGH_EDGE.backend, gateway=THROUGH_EDGE.gateway, section="admin")


def annotated(document: str, placement: str | None = None, bodies: str | None = None) -> str:
    """Return a document with annotations."""
    written = ((PLACEMENT, placement), (BODY_INSPECTION, bodies))
    text = ", ".join(f"{key}: '{value}'" for key, value in written if value is not None)
    return document.replace("metadata: {", f"metadata: {{annotations: {{{text}}}, ", 1)


def problems(made: Compiled) -> list[str]:
    return [f"{ref.kind}/{ref.object_name}: {each}" for ref, found in made.problems.items() for each in found]


class Case(NamedTuple):
    backend: tuple[str | None, str | None] = (None, None)
    gateway: tuple[str | None, str | None] = (None, None)
    configured: str = "{}"
    want: tuple[Placement, BodyInspection] = (AUTO, STRICT)


CASES: Final = {
    "nothing is written": Case(),
    "the configuration holds where nothing else is written": Case(
        configured="{placement: CallOut, bodyInspection: Native}", want=(CALL_OUT, NATIVE)
    ),
    "a backend chooses for itself": Case(
        ("Auto", "Native"), configured="{placement: CallOut, bodyInspection: Strict}", want=(AUTO, NATIVE)
    ),
    "a Gateway chooses for all behind it": Case(
        gateway=("CallOut", "Native"), want=(CALL_OUT, NATIVE)
    ),
    "the stricter of the two wins, here the Gateway": Case(
        ("Auto", "Native"), ("CallOut", "Strict"), want=(CALL_OUT, STRICT)
    ),
    "the stricter of the two wins, here the backend": Case(
        ("CallOut", "Strict"), ("Auto", "Native"), want=(CALL_OUT, STRICT)
    ),
    "each of the two choices stands alone": Case(("CallOut", None), (None, "Native"), want=(CALL_OUT, NATIVE)),
    "both say the same": Case(("Auto", "Native"), ("Auto", "Native"), want=(AUTO, NATIVE)),
}  # fmt: skip


@pytest.mark.parametrize("target", [THROUGH_EDGE, LISTENER], ids=["gateway", "listener"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_of_what_is_written_the_stricter_holds(case: Case, target: RequestTarget) -> None:
    made = compiled(
        annotated(BACKEND, *case.backend), annotated(GATEWAY, *case.gateway), settings(case.configured), policy(rule())
    )
    way = made.policies.chain(target)
    assert way is not None
    assert ((way.placement, way.body_inspection), errors(made)) == (case.want, [])


def test_an_xbackend_chooses_too() -> None:
    document = annotated(BACKEND.replace("kind: Backend", "kind: XBackend").replace("v1alpha1", "v0alpha0"), "CallOut")
    way = compiled(document).policies.chain(RequestTarget(backend=Ref("XBackend", "default", "shop")))
    assert way is not None
    assert (way.placement, way.body_inspection) == (CALL_OUT, STRICT)


@pytest.mark.parametrize("text", ["", "auto", "callout", "Native", "Strict"])
def test_an_unknown_placement_is_an_error_and_leaves_all_to_the_server(text: str) -> None:
    made = compiled(annotated(BACKEND, text), settings("{bodyInspection: Native}"))
    way = made.policies.chain(TO_SHOP)
    assert way is not None
    assert (way.placement, way.body_inspection) == (CALL_OUT, NATIVE)
    assert problems(made) == [
        f"Backend/default/shop: metadata.annotations.{PLACEMENT}: "
        f"{text!r} is not supported, so 'CallOut' applies. Use 'Auto' or 'CallOut'. [AnnotationInvalid]"
    ]


def test_an_unknown_body_inspection_is_an_error_and_leaves_bodies_to_the_server() -> None:
    made = compiled(BACKEND, annotated(GATEWAY, bodies="native"), settings("{bodyInspection: Native}"))
    way = made.policies.chain(THROUGH_EDGE)
    assert way is not None
    assert (way.placement, way.body_inspection) == (AUTO, STRICT)
    assert problems(made) == [
        f"Gateway/default/edge: metadata.annotations.{BODY_INSPECTION}: "
        "'native' is not supported, so 'Strict' applies. Use 'Strict' or 'Native'. [AnnotationInvalid]"
    ]


def test_an_annotation_with_another_name_chooses_nothing_and_is_named() -> None:
    made = compiled(annotated(BACKEND, "CallOut").replace(PLACEMENT, "authplane.dev/Placement"))
    way = made.policies.chain(TO_SHOP)
    assert way is not None
    assert (way.placement, errors(made)) == (AUTO, [])
    assert problems(made) == [
        "Backend/default/shop: metadata.annotations.authplane.dev/Placement: Unknown annotation. "
        f"Supported: {PLACEMENT}, {BODY_INSPECTION}, {IDLE_TIMEOUT}. [AnnotationUnknown]"
    ]


def test_an_unknown_value_in_the_configuration_closes_everything() -> None:
    assert compiled(BACKEND, settings("{placement: Always}"), policy(rule())).policies.closed
