"""The status of GatewayClasses: those of our controller are accepted."""

from collections.abc import Iterator
from typing import Final

from authplane.controlplane.status.gateway_status import CONTROLLER
from authplane.controlplane.status.kubernetes.stored_objects import StoredObjects
from authplane.controlplane.status.resource_status import Condition, Status

KIND: Final = "GatewayClass"
_ACCEPTED: Final = Condition(
    type="Accepted",
    status="True",
    reason="Accepted",
    message="authplane serves the Gateways of this class.",
)


def class_statuses(objects: StoredObjects) -> Iterator[Status]:
    """Return the status of each class of ours."""
    for stored in objects.of_kind(KIND):
        if stored.controller == CONTROLLER:
            yield Status(
                ref=stored.ref,
                api_version=stored.api_version,
                generation=stored.generation,
                conditions=(_ACCEPTED,),
            )
