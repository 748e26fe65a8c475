"""What a folder of Contour's resources needs of a whole cluster, and what is missing in it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from authplane.core.names import ObjectName
from authplane.core.text import name_some
from authplane.devkit.scaffold.check_files import CheckedFiles
from authplane.devkit.scaffold.contour_documents import Document, items, mapping
from authplane.devkit.scaffold.old_servers import pod_labels
from authplane.resources.kinds.contour_file import BARE, CONFIG_MAP, KEY
from authplane.resources.kinds.core import AUTH_TYPE, SERVICE_LABEL

_MOST_NAMED: Final = 5
_SETTINGS: Final = frozenset({"ContourConfiguration", "ContourDeployment"})
_AGAIN: Final = "and run init again with --force"


def referenced(documents: Iterable[Document], checked: CheckedFiles) -> list[Document]:
    """Leave out Secrets, ConfigMaps, Services and EndpointSlices that no other resource refers to."""
    return [each for each in documents if _is_needed(each, checked)]


def unreferenced_lines(before: Iterable[Document], kept: Iterable[Document], known: frozenset[str]) -> Iterator[str]:
    """Say which documents stay out of the folder; ``known`` are Secrets of which another line tells."""
    stay = {id(each) for each in kept}
    out: dict[str, list[str]] = {}
    for each in before:
        if id(each) not in stay and not (each.kind == "Secret" and each.name in known):
            out.setdefault(each.kind, []).append(each.name)
    for kind, names in sorted(out.items()):
        yield f"{kind} {name_some(sorted(names), _MOST_NAMED)}: no other resource of the folder refers to it."


def missing_lines(documents: Sequence[Document], kept: Sequence[Document]) -> Iterator[str]:
    """Say what an export leaves out, where that would change what authplane protects or serves."""
    yield from _missing_settings(documents, kept)
    for service in _services_of_extensions(kept):
        selector = mapping(service.spec.get("selector"))
        pods = [pod_labels(each) for each in documents if each.namespace == service.namespace]
        if selector and not any(selector.items() <= labels.items() for labels in pods):
            yield (
                f"The folder has no Deployment for Service {service.name}, which an ExtensionService uses."
                f" If this Service runs contour-authserver, export deployments {_AGAIN}; init then"
                " replaces contour-authserver."
            )
    if not any(each.kind == "EndpointSlice" for each in documents):
        yield (
            "The folder has no EndpointSlices, so Envoy does not know the addresses of Services. Export"
            f" endpointslices {_AGAIN}."
        )


def _is_needed(document: Document, checked: CheckedFiles) -> bool:
    match document.kind:
        case "Service" | "Secret" | "ConfigMap" as kind:
            name = ObjectName(document.namespace, str(document.metadata.get("name") or ""))
            return (kind, name) in checked.wanted or _is_read_whole(document)
        case "EndpointSlice":
            service = str(mapping(document.metadata.get("labels")).get(SERVICE_LABEL) or "")
            return ("Service", ObjectName(document.namespace, service)) in checked.wanted
        case _:
            return True


def _is_read_whole(document: Document) -> bool:
    """Tell whether a program reads this document although nothing names it: users, and Contour's settings."""
    if document.kind == "Secret":
        return mapping(document.metadata.get("annotations")).get(AUTH_TYPE) == "basic"
    return document.kind == "ConfigMap" and (_has_settings(document) or CONFIG_MAP in document.name.partition("/")[2])


def _has_settings(document: Document) -> bool:
    named = document.kind == "ConfigMap" and KEY in mapping(document.value.get("data"))
    return named or document.kind in _SETTINGS or any(ref.kind == BARE for ref in document.refs)


def _missing_settings(documents: Iterable[Document], kept: Iterable[Document]) -> Iterator[str]:
    if any(_has_settings(each) for each in documents):
        return
    hosts = [mapping(each.spec.get("virtualhost")) for each in kept if each.kind == "HTTPProxy"]
    open_hosts = sorted(str(each["fqdn"]) for each in hosts if each.get("fqdn") and not each.get("authorization"))
    lost = (
        "If Contour's configuration sets globalExtAuth, authplane would serve"
        f" {name_some(open_hosts, _MOST_NAMED)} without authorization. "
    )
    yield (
        f"The folder has no configuration of Contour. {lost if open_hosts else ''}"
        f"Export configmaps and contourconfigurations {_AGAIN}."
    )


def _services_of_extensions(kept: Sequence[Document]) -> Iterator[Document]:
    used = {
        (each.namespace, mapping(service).get("name"))
        for each in kept
        if each.kind == "ExtensionService"
        for service in items(each.spec.get("services"))
    }
    for each in kept:
        if each.kind == "Service" and (each.namespace, each.metadata.get("name")) in used:
            yield each
