"""Which HTTPProxies, Gateways and HTTPRoutes of a cluster are ours, by their classes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.policy.compile.compile_policies import CONTROLLER
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import chosen_class
from authplane.sources.kubernetes.api_kinds import ApiKind

GATEWAY_CLASSES: Final = ApiKind(
    group="gateway.networking.k8s.io", versions=("v1", "v1beta1"), plural="gatewayclasses", kind="GatewayClass"
)
OURS: Final = frozenset({"", "authplane"})
"""The ingress classes of HTTPProxies that are ours, unless the settings have ``ingress.classNames``."""

Key: TypeAlias = tuple[str, ObjectName]
"""A kind and a name."""


@dataclass(frozen=True, slots=True)
class _Classed:
    """An object, its file, and what decides whose it is."""

    file: str
    of: str | tuple[ObjectName, ...]
    """The name of its class, or the Gateways of a route."""


class Classes:
    """Remembers the classes of objects and which of them are ours.

    Without ``gateways``, the classes of Gateways are unknown, and all of them count as ours.
    """

    def __init__(self, *, gateways: bool = True) -> None:
        self._every_gateway = not gateways
        self._ingress = OURS
        self._gateway_classes: frozenset[str] = frozenset()
        self._objects: dict[str, dict[ObjectName, _Classed]] = {"HTTPProxy": {}, "Gateway": {}, "HTTPRoute": {}}
        self._changed = False
        """Classes or Gateways are others than at the last `update`."""

    def note(self, kind: str, name: ObjectName, file: str, document: Mapping[str, Any]) -> bool:
        """Take the newest version of an object; tell whether it is ours. Most kinds have no classes."""
        spec = _mapping(document.get("spec"))
        match kind:
            case "GatewayClass":
                named = {name.name} if spec.get("controllerName") == CONTROLLER else set()
                self._set_gateway_classes((self._gateway_classes - {name.name}) | named)
                return False
            case "HTTPProxy":
                annotations = _mapping(_mapping(document.get("metadata")).get("annotations"))
                of: str | tuple[ObjectName, ...] = chosen_class(annotations) or str(spec.get("ingressClassName") or "")
            case "Gateway":
                of = str(spec.get("gatewayClassName") or "authplane")
                self._changed = True
            case "HTTPRoute":
                of = tuple(_gateways(name.namespace, spec))
            case _:
                return True
        self._objects[kind][name] = _Classed(file, of)
        return self.ours(kind, name)

    def forget(self, kind: str, name: ObjectName) -> None:
        """Note that an object is gone."""
        if kind == "GatewayClass":
            self._set_gateway_classes(self._gateway_classes - {name.name})
        elif kind in self._objects:
            self._objects[kind].pop(name, None)
            self._changed = self._changed or kind == "Gateway"

    def update(self, resources: Resources) -> list[tuple[Key, str]]:
        """Take the settings in force; return all objects whose owner may be another now, with their files."""
        names = [*_class_names(resources)]
        ingress = frozenset(names) if names else OURS
        kinds = ["HTTPProxy"] if ingress != self._ingress else []
        kinds += ["Gateway", "HTTPRoute"] if self._changed else []
        self._ingress, self._changed = ingress, False
        return [((kind, name), each.file) for kind in kinds for name, each in sorted(self._objects[kind].items())]

    def ours(self, kind: str, name: ObjectName) -> bool:
        """Tell whether an object is ours; a route is not if all its Gateways are of other classes."""
        found = self._objects[kind][name].of
        if isinstance(found, str):
            if kind == "HTTPProxy":
                return found in self._ingress
            return self._every_gateway or found in self._gateway_classes
        return not found or any(self._may_be_ours(gateway) for gateway in found)

    def _may_be_ours(self, gateway: ObjectName) -> bool:
        return gateway not in self._objects["Gateway"] or self.ours("Gateway", gateway)

    def _set_gateway_classes(self, names: frozenset[str]) -> None:
        self._changed = self._changed or names != self._gateway_classes
        self._gateway_classes = names


def _class_names(resources: Resources) -> Iterator[str]:
    if resources.configuration is not None and resources.configuration.spec.contour is not None:
        yield from resources.configuration.spec.contour.ingress.class_names
    if resources.contour_configuration is not None:
        yield from resources.contour_configuration.spec.ingress.class_names
    for file in resources.contour_files.values():
        yield from file.spec.ingress.class_names


def _gateways(namespace: str, spec: Mapping[str, Any]) -> Iterator[ObjectName]:
    parents = spec.get("parentRefs")
    for each in parents if isinstance(parents, list) else ():
        parent = _mapping(each)
        if parent.get("kind", "Gateway") == "Gateway":
            yield ObjectName(str(parent.get("namespace") or namespace), str(parent.get("name") or ""))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
