"""Fields that we read and an installed definition lacks."""

from typing import Any

import pytest

from authplane.resources.kinds.agentic import XAccessPolicy
from authplane.resources.kinds.extension_service import ExtensionService
from authplane.resources.kinds.gateway import HTTPRoute
from authplane.resources.pruned_fields import pruned_fields, published_schema


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
VALIDATION = of(caSecret=TEXT, subjectName=TEXT, subjectNames={"type": "array", "items": TEXT})
ALL_OF_SPEC = dict.fromkeys(
    ("protocol", "loadBalancerPolicy", "timeoutPolicy", "protocolVersion", "circuitBreakerPolicy", "serverName",
     "authority"), ANYTHING,
)  # fmt: skip
PORT = {"type": "integer"}


@pytest.mark.parametrize(
    ("spec", "pruned"),
    [
        pytest.param(ANYTHING, (), id="a definition that keeps everything"),
        pytest.param(
            of(services={"type": "array", "items": of(name=TEXT, port=PORT, weight=PORT)}, validation=VALIDATION),
            (
                "spec.services[].protocol",
                "spec.services[].validation",
                "spec.services[].mirror",
                *(f"spec.{name}" for name in ALL_OF_SPEC),
            ),
            id="a field below items, one that we refuse, and whole objects once",
        ),
        pytest.param(
            of(services={"type": "array", "items": ANYTHING}, validation=of(caSecret=TEXT), **ALL_OF_SPEC),
            ("spec.validation.subjectName", "spec.validation.subjectNames"),
            id="a field of an object that is there",
        ),
    ],
)
def test_the_fields_that_are_lost_are_named(spec: dict[str, Any], pruned: tuple[str, ...]) -> None:
    found = pruned_fields(ExtensionService, of(spec=spec))
    assert sorted(found) == sorted(pruned)


def test_a_single_object_where_we_read_a_list_is_compared_with_its_items() -> None:
    rules = {"type": "array", "items": of(name=TEXT, source=ANYTHING, authorization=of(type=TEXT, cel=TEXT))}
    found = pruned_fields(XAccessPolicy, of(spec=of(rules=rules, targetRefs=ANYTHING)))
    assert "spec.rules[].authorization.mcp" in found
    assert "spec.rules[].authorization.cel" not in found


def test_a_definition_without_a_spec_loses_all_of_it() -> None:
    assert pruned_fields(HTTPRoute, of(status=ANYTHING)) == ("spec",)


def test_a_schema_is_found_by_group_version_and_kind() -> None:
    named = {"x-kubernetes-group-version-kind": [{"group": "a", "version": "v1", "kind": "B"}], "type": "object"}
    published = {"components": {"schemas": {"a.v1.B": named, "a.v1.BList": {}}}}
    assert published_schema(published, "a", "v1", "B") == named
    assert published_schema(published, "a", "v2", "B") is None
    assert published_schema({}, "a", "v1", "B") is None
