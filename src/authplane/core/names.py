"""Names of Kubernetes-style objects."""

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ObjectName:
    """An object of a known kind."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """An object of any kind; kinds that we read have distinct names, so the group is left out."""

    kind: str
    namespace: str
    name: str

    @property
    def object_name(self) -> ObjectName:
        """The name without the kind."""
        return ObjectName(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"
