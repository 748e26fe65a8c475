"""Finds the settings of the installation: in an AuthplaneConfiguration, and in everything that Contour reads."""

from collections.abc import Iterator
from typing import Final, TypeAlias

from authplane.core.names import Ref
from authplane.core.problems import Path, dotted
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.contour_file import BARE, CONFIG_MAP, KEY, path_in_file
from authplane.resources.kinds.contour_settings import (
    ContourConfiguration,
    ContourConfigurationSpec,
    ContourDeployment,
    ContourSettings,
)

Spec: TypeAlias = ContourSettings | ContourConfigurationSpec

_KINDS: Final = {
    "AuthplaneConfiguration": "AuthplaneConfiguration",
    "ContourConfiguration": "ContourConfiguration",
    "ContourDeployment": "ContourDeployment",
    "ConfigMap": f"ConfigMap with {KEY}",
    BARE: f"configuration file {KEY}",
}
"""The kinds with settings, and their names in messages; the first with errors is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An object or file with settings, and the field that contains them."""

    ref: Ref
    above: Path
    spec: Spec
    in_file: bool = False
    """Whether the settings have the names of Contour's configuration file."""

    def path(self, path: Path) -> Path:
        """Return the path of a setting that a ContourConfiguration has at this path of its ``spec``."""
        return (*self.above, *(path_in_file(path) if self.in_file else path))

    def name(self, path: Path) -> str:
        """Name a field for people."""
        return f"{dotted(self.path(path))} of {self.ref}"


def settings_places(resources: Resources) -> Iterator[Place]:
    """Return everything that has settings, ours first."""
    ours, theirs, deployment = resources.configuration, resources.contour_configuration, resources.contour_deployment
    if ours is not None:
        yield Place(ref=configuration_ref(ours), above=("spec", "contour"), spec=ours.spec.contour)
    if theirs is not None:
        yield Place(ref=configuration_ref(theirs), above=("spec",), spec=theirs.spec)
    if deployment is not None:
        above: Path = ("spec", "runtimeSettings")
        yield Place(ref=configuration_ref(deployment), above=above, spec=deployment.spec.runtime_settings)
    for file in resources.contour_files.values():
        yield Place(ref=file.ref, above=file.above, spec=file.spec, in_file=True)


def broken_settings(resources: Resources) -> frozenset[Ref]:
    """Return the resources with settings that cannot be read and have no last good version."""
    return frozenset(
        ref for ref in resources.broken if ref.kind in _KINDS and (ref.kind != "ConfigMap" or CONFIG_MAP in ref.name)
    )


def unusable_words(refs: frozenset[Ref]) -> str:
    """Name what cannot be used, for people; empty if nothing is among ``refs``."""
    kinds = {ref.kind for ref in refs}
    return next((words for kind, words in _KINDS.items() if kind in kinds), "")


def configuration_ref(configuration: AuthplaneConfiguration | ContourConfiguration | ContourDeployment) -> Ref:
    """Name a configuration."""
    return Ref(type(configuration).__name__, configuration.metadata.namespace, configuration.metadata.name)
