"""The condition ``SchemasComplete``."""

from authplane.controlplane.status.resource_status import Condition, Status
from authplane.controlplane.status.schema_status import schema_condition, with_installed_schemas
from authplane.core.names import Ref
from authplane.sources.kubernetes.installed_kinds import InstalledKind

COMPLETE = InstalledKind(resource="httpproxies.projectcontour.io", version="v1")
CUT = InstalledKind(
    resource="extensionservices.projectcontour.io", version="v1alpha1", pruned=("spec.serverName", "spec.authority")
)
REF = Ref("AuthplaneConfiguration", "default", "gateway")


def status_of(ref: Ref) -> Status:
    return Status(ref=ref, api_version="authplane.dev/v1alpha1", generation=1, conditions=())


def test_dropped_fields_are_named_with_their_kind() -> None:
    assert schema_condition([COMPLETE, CUT]) == Condition(
        type="SchemasComplete",
        status="False",
        reason="FieldsDropped",
        message="The API server drops these fields of extensionservices.projectcontour.io: spec.serverName, "
        "spec.authority. Remove these fields from your objects, or install newer CustomResourceDefinitions.",
    )


def test_complete_definitions_and_kinds_that_are_not_there_are_no_fault() -> None:
    condition = schema_condition([COMPLETE, InstalledKind(resource="backends.agentic.networking.x-k8s.io", version="")])
    assert (condition.status, condition.reason) == ("True", "FieldsKept")


def test_only_the_configuration_gets_the_condition_and_none_in_a_folder() -> None:
    other = status_of(Ref("HTTPProxy", "default", "web"))
    first, second = with_installed_schemas([status_of(REF), other], REF, [CUT])
    assert [each.type for each in first.conditions] == ["SchemasComplete"]
    assert second == other
    assert with_installed_schemas([other], REF, ()) == (other,)
