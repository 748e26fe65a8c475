"""What every object has."""

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Annotated, ClassVar, Final

from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.resources.typed.schema import Length, Matches, Upstream

NAME: Final = Matches(re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"), "web-1")
LABEL: Final = Matches(re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"), "shop")
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """``metadata`` of an object."""

    name: Annotated[str, Length(1, 253), NAME]
    namespace: Annotated[str, Length(1, 63), LABEL] = "default"
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    generation: int = 1
    creation_timestamp: str = ""
    """Where several objects compete, the oldest comes first; those without a time come last."""

    UPSTREAM: ClassVar = Upstream(
        silent=(
            "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName", "managedFields",
            "ownerReferences", "resourceVersion", "selfLink", "uid",
        )
    )  # fmt: skip

    @property
    def object_name(self) -> ObjectName:
        """Namespace and name."""
        return ObjectName(self.namespace, self.name)
