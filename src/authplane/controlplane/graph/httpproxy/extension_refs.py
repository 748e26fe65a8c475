"""References to ExtensionServices."""

from collections.abc import Mapping
from typing import Final

from authplane.controlplane.graph.model.upstreams import Extension
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Path, Problems
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour_policies import ExtensionRef
from authplane.resources.similar_names import suggested

_WRITTEN: Final = {"HTTPServerSettings": "httpSettings"}
"""The fields whose names are not those of Contour's messages in lower case."""
_API_VERSION: Final = "projectcontour.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class Extensions:
    """Everything that a reference may lead to."""

    resources: Resources
    usable: Mapping[ObjectName, Extension]

    def named(
        self, ref: ExtensionRef, namespace: str, where: str, problems: Problems, field: Path = ("extensionRef",)
    ) -> Extension | None:
        """Return the service that a block names; None after an error.

        ``namespace`` applies if the reference has none, ``where`` names the block in messages, and ``field`` is where
        the block has the reference.
        """
        require_known_kind(ref, where, problems)
        if not ref.name:
            report_missing_reference(where, problems)
            return None
        name = ObjectName(ref.namespace or namespace, ref.name)
        extension = self.usable.get(name)
        if extension is None:
            with problems.at(*field):
                self._report(name, where, problems)
        return extension

    def _report(self, name: ObjectName, where: str, problems: Problems) -> None:
        who = service_words(where, name)
        broken = Ref("ExtensionService", name.namespace, name.name) in self.resources.broken
        if broken or name in self.resources.extension_services:
            problems.add("ExtensionServiceNotValid", f"{who} is not valid. See its status.")
        elif _is_contours(where):
            meant = suggested(name, self.resources.extension_services)
            problems.add("ExtensionServiceNotFound", f'{where}.ServiceRef extension service "{name}" not found{meant}')
        else:
            meant = suggested(name, self.resources.extension_services)
            said = f'{where}: ExtensionService "{name}" not found{meant or "."}'
            problems.add("ExtensionServiceNotFound", f"{said} Create it, or correct the name.")


def field_words(where: str, *fields: str) -> str:
    """Name a field of a block: in an HTTPProxy as Contour's messages do, elsewhere as authors write it."""
    written = fields if _is_contours(where) else (_WRITTEN.get(each, f"{each[0].lower()}{each[1:]}") for each in fields)
    return ".".join((where, *written))


def service_words(where: str, name: ObjectName) -> str:
    """Name the ExtensionService of a block, at the beginning of a message."""
    return (
        f'{where}.ServiceRef extension service "{name}"'
        if _is_contours(where)
        else (f'{where}: ExtensionService "{name}"')
    )


def _is_contours(where: str) -> bool:
    """Tell whether Contour has messages about a block: it has for those of HTTPProxies."""
    return where.startswith("Spec.")


def require_known_kind(ref: ExtensionRef, where: str, problems: Problems) -> None:
    """Report a reference to anything but an ExtensionService."""
    with problems.at("extensionRef"):
        if ref.api_version not in {"", _API_VERSION}:
            problems.add(
                "AuthBadResourceVersion",
                f'{where}.extensionRef specifies an unsupported resource version "{ref.api_version}"',
            )
        if ref.kind not in {"", "ExtensionService"}:
            problems.add(
                "AuthBadResourceKind", f'{where}.extensionRef specifies an unsupported resource kind "{ref.kind}"'
            )


def report_missing_reference(where: str, problems: Problems) -> None:
    """Report a block that names no authorization service."""
    spoken = where.replace("Virtualhost", "VirtualHost")
    with problems.at("extensionRef", "name"):
        problems.add("AuthMissingExtensionRef", f"{spoken} does not name an authorization service. Set extensionRef.")
