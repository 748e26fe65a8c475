"""One document's node to a typed resource."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias, cast

from authplane.core.addresses import parse_ip_address
from authplane.core.names import Ref
from authplane.core.problems import Problem, Severity
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.resources.catalogue import KINDS, OWNED_GROUPS, OWNED_KINDS, POLICIES, RENAMED, TLS_POLICY, Resource
from authplane.resources.contour_files import BARE_REF, holds_file, is_bare_file, read_bare_file, read_config_map
from authplane.resources.documents import StoredAncestor
from authplane.resources.kinds.agentic import Backend, XBackend
from authplane.resources.kinds.authorization_service_kind import AuthorizationService, server_problems
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.contour import CLASS_ANNOTATIONS, HTTPProxy, chosen_class
from authplane.resources.kinds.contour_file import ContourFile
from authplane.resources.kinds.core import ConfigMap
from authplane.resources.kinds.meta import Meta
from authplane.resources.mcp_places import place_problems
from authplane.resources.typed.shapes import INVALID, Report, read_fields, shape_of, suggestion
from authplane.resources.yaml.nodes import Fields, Items, Node, Scalar, is_null, plain, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A document that is ours to judge: a resource if it has no error, and its name if that can be read."""

    ref: Ref | None
    resource: Resource | None
    problems: tuple[Problem, ...]
    protects: tuple[Ref, ...] | None = None
    """The targets of a policy; None if they cannot be read, and for other kinds."""
    ancestors: tuple[StoredAncestor, ...] = ()
    """What the status of a policy says of its ancestors."""
    host: str | None = None
    """The name that an HTTPProxy with errors claims as a root; None where that cannot be read, and for other kinds."""
    ingress_class: str | None = None
    """That of an HTTPProxy with errors; None where it cannot be read, and for other kinds."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A document of a kind that does not concern us."""

    kind: str
    api_version: str

    def doubts(self) -> tuple[Problem, ...]:
        """Warn if the kind is named like a policy: its author may think that it protects something."""
        if self.kind not in POLICIES:
            return ()
        known = ", ".join(sorted(version for version, kind in KINDS if kind == self.kind))
        said = (
            f"{self.kind} of {_cut(self.api_version)!r} is not a kind of authplane, so this resource protects "
            f"nothing. Supported: {known}."
        )
        return (Problem(("apiVersion",), "KindForeign", said, Severity.WARNING),)


Document: TypeAlias = Decoded | Foreign


def parse_document(root: Node) -> Document:
    """Read a document by its API version and kind."""
    if not isinstance(root, Fields):
        return _refused(Problem((), "NotAResource", "A document must be a mapping. Add 'apiVersion' and 'kind'."))
    api, kind = _word(root, "apiVersion"), _word(root, "kind")
    if api is None or kind is None:
        return _without_kind(api, kind, root)
    current = RENAMED.get((api, kind), kind)
    made = KINDS.get((api, current))
    if made is not None:
        decoded = _decode(made, current, root)
        return decoded if current == kind else _with_former_kind(decoded, kind, current)
    group = api.rpartition("/")[0]
    if api in OWNED_GROUPS or group in OWNED_GROUPS or (group, kind) in OWNED_KINDS:
        problem = Problem(("kind",), "KindUnknown", _unknown(api, kind))
        return _unusable(kind, root, (problem,)) if kind in _AIMED else _refused(problem)
    items = root.entries.get("items")
    if kind == "List" and items is not None and not is_null(items.node):
        return _refused(
            Problem(
                ("items",),
                "NotAResource",
                "A List must have a list of resources and no inner List. Move the inner resources into this List.",
            )
        )
    return Foreign(kind, api)


def _with_former_kind(decoded: Decoded, former: str, current: str) -> Decoded:
    """Warn that a document uses the former name of its kind."""
    message = f"Kind {former} is deprecated. Write kind: {current}."
    return replace(decoded, problems=(Problem(("kind",), "KindRenamed", message, Severity.WARNING), *decoded.problems))


def _decode(made: type[Resource], kind: str, root: Fields) -> Decoded:
    report = Report(quiet=kind == "Secret")
    value = read_fields(shape_of(made), root, (), report, _AROUND)
    if value is INVALID:
        return _unusable(kind, root, tuple(report.problems))
    resource = cast("Resource", value)
    if isinstance(resource, ConfigMap) and holds_file(resource):
        return _file_in(resource, root)
    if isinstance(resource, ContourFile):
        raise TypeError("no kind is a file")
    report.problems.extend(CHECKS.get(made, _nothing)(resource))
    sound = not any(problem.severity is Severity.ERROR for problem in report.problems)
    if not sound:
        return _unusable(kind, root, tuple(report.problems))
    ref = Ref(kind, resource.metadata.namespace, resource.metadata.name)
    protects = _targets(root, ref.namespace) if kind in _AIMED else None
    ancestors = _ancestors(root) if kind in _AIMED else ()
    found = tuple(report.problems)
    return Decoded(ref=ref, resource=resource, problems=found, protects=protects, ancestors=ancestors)


def _without_kind(api: str | None, kind: str | None, root: Fields) -> Decoded:
    """Read what is no resource: Contour's configuration file is the only such thing that concerns us."""
    if is_bare_file(root):
        report = Report()
        file = read_bare_file(root, report)
        return Decoded(ref=BARE_REF, resource=file, problems=tuple(report.problems))
    missing = " and ".join(repr(name) for name, word in (("apiVersion", api), ("kind", kind)) if word is None)
    return _refused(Problem((), "NotAResource", f"This document is not a resource. Add {missing} as a string."))


def _file_in(config_map: ConfigMap, root: Fields) -> Decoded:
    """Read Contour's configuration in a ConfigMap; we use this ConfigMap for nothing else."""
    report = Report()
    file = read_config_map(config_map, report)
    problems = tuple(report.problems)
    if file is None:
        return _unusable(ConfigMap.__name__, root, problems)
    return Decoded(ref=file.ref, resource=file, problems=problems)


def _backend(resource: Resource) -> Iterator[Problem]:
    if not isinstance(resource, Backend | XBackend):
        return
    spec = resource.spec
    if spec.type == "GRPC" and isinstance(resource, XBackend):
        yield Problem(
            ("spec", "type"), "FieldInvalid", "An XBackend can only be an MCP server. For other types, use Backend."
        )
    for kind, field, member in (("MCP", "mcp", spec.mcp), ("GRPC", "grpc", spec.grpc)):
        if spec.type == kind and member is None:
            yield Problem(("spec", field), "FieldRequired", f"{field!r} is required for type {kind}. Add it.")
        if spec.type != kind and member is not None:
            yield Problem(
                ("spec", field), "FieldInvalid", f"A Backend of type {spec.type} cannot have {field!r}. Remove it."
            )
    if spec.mcp is not None:
        yield from place_problems(spec.mcp)
    if spec.grpc is not None and parse_ip_address(spec.grpc.address) is None:
        message = f"{_cut(spec.grpc.address)!r} is not an IP address. Use one such as 127.0.0.1."
        yield Problem(("spec", "grpc", "address"), "FieldInvalid", message)


def _configuration(resource: Resource) -> Iterator[Problem]:
    if not isinstance(resource, AuthplaneConfiguration):
        return
    listeners = resource.spec.listeners
    for field, address in (("http", listeners.http.address), ("https", listeners.https.address)):
        if parse_ip_address(address) is None:
            message = f"{_cut(address)!r} is not an IP address. Use one such as 127.0.0.1."
            yield Problem(("spec", "listeners", field, "address"), "FieldInvalid", message)
    if listeners.http.port == listeners.https.port:
        message = f"http and https both have port {listeners.http.port}. Set different ports."
        yield Problem(("spec", "listeners"), "FieldConflict", message)


def _authorization_service(resource: Resource) -> Iterator[Problem]:
    return server_problems(resource) if isinstance(resource, AuthorizationService) else iter(())


def _nothing(_: Resource) -> Iterator[Problem]:
    return iter(())


CHECKS: Final[Mapping[type[Resource], Callable[[Resource], Iterator[Problem]]]] = MappingProxyType(
    {
        Backend: _backend,
        XBackend: _backend,
        AuthplaneConfiguration: _configuration,
        AuthorizationService: _authorization_service,
    }
)
"""What a kind demands of several fields together."""

_AIMED: Final = POLICIES | {TLS_POLICY}
"""Kinds whose targets must not be left without them."""
_AROUND: Final = frozenset({"apiVersion", "kind", "status"})


def _ref(kind: str, root: Fields) -> Ref | None:
    """Read the name of a resource that has errors elsewhere."""
    entry = root.entries.get("metadata")
    if entry is None or not isinstance(entry.node, Fields):
        return None
    readers = shape_of(Meta).readers
    found: dict[str, object] = {"namespace": "default"}
    for field in ("name", "namespace"):
        value = entry.node.entries.get(field)
        if value is not None and not is_null(value.node):
            found[field] = readers[field][1](value.node, (), Report())
    name, namespace = found.get("name"), found["namespace"]
    return Ref(kind, namespace, name) if isinstance(name, str) and isinstance(namespace, str) else None


def _unusable(kind: str, root: Fields, problems: tuple[Problem, ...]) -> Decoded:
    """Return a document that cannot be used; a policy with what it was meant to protect."""
    ref = _ref(kind, root)
    protects = _targets(root, ref.namespace) if ref is not None and kind in _AIMED else None
    host, ingress_class = (_host(root), _ingress_class(root)) if kind == HTTPProxy.__name__ else (None, None)
    return Decoded(ref=ref, resource=None, problems=problems, protects=protects, host=host, ingress_class=ingress_class)


def _host(root: Fields) -> str | None:
    """Read the name that an HTTPProxy claims, whatever errors it has elsewhere; without one it may have meant any."""
    virtual_host = _fields(_fields(root, "spec"), "virtualhost")
    return None if virtual_host is None else _word(virtual_host, "fqdn")


def _ingress_class(root: Fields) -> str | None:
    """Read the class of an HTTPProxy that has errors elsewhere."""
    spec, meta = _fields(root, "spec"), _fields(root, "metadata")
    annotations = _fields(meta, "annotations")
    if spec is None or meta is None or (annotations is None and "annotations" in meta.entries):
        return None
    given = {} if annotations is None else annotations.entries
    texts = {each: _text(given[each].node) for each in CLASS_ANNOTATIONS if each in given}
    own = _text(spec.entries["ingressClassName"].node) if "ingressClassName" in spec.entries else ""
    known = {each: text for each, text in texts.items() if text is not None}
    return None if own is None or len(known) < len(texts) else chosen_class(known) or own


def _text(node: Node) -> str | None:
    value = value_of(node) if isinstance(node, Scalar) else None
    return value if isinstance(value, str) else None


def _fields(node: Fields | None, name: str) -> Fields | None:
    entry = None if node is None else node.entries.get(name)
    return entry.node if entry is not None and isinstance(entry.node, Fields) else None


def _targets(root: Fields, namespace: str) -> tuple[Ref, ...] | None:
    """Read the targets of a policy, whatever errors it has elsewhere."""
    spec = root.entries.get("spec")
    refs = spec.node.entries.get("targetRefs") if spec is not None and isinstance(spec.node, Fields) else None
    if refs is None or not isinstance(refs.node, Items):
        return None
    found = []
    for item in refs.node.items:
        kind, name = (_word(item, "kind"), _word(item, "name")) if isinstance(item, Fields) else (None, None)
        if kind is None or name is None:
            return None  # one of them may name anything
        found.append(Ref(kind, namespace, name))
    return tuple(found)


def _ancestors(root: Fields) -> tuple[StoredAncestor, ...]:
    """Read the entries of a status; an unreadable entry counts as another controller's."""
    status = root.entries.get("status")
    listed = status.node.entries.get("ancestors") if status is not None and isinstance(status.node, Fields) else None
    entries = listed.node.items if listed is not None and isinstance(listed.node, Items) else ()
    return tuple(
        StoredAncestor(_word(each, "controllerName") or "" if isinstance(each, Fields) else "", json.dumps(plain(each)))
        for each in entries
    )


def _word(root: Fields, name: str) -> str | None:
    entry = root.entries.get(name)
    return (_text(entry.node) or None) if entry is not None else None


def _unknown(api: str, kind: str) -> str:
    known = {f"{name} of {version}": None for version, name in KINDS if version.rpartition("/")[0] in OWNED_GROUPS}
    group = api.partition("/")[0]
    supported = f" Supported: {', '.join(sorted(each for each in known if f' of {group}/' in each))}."
    return f"{_cut(api)!r} has no kind {_cut(kind)!r}.{suggestion(f'{kind} of {api}', known) or supported}"


def _cut(word: str) -> str:
    return shorten(word, 64)


def _refused(problem: Problem) -> Decoded:
    return Decoded(ref=None, resource=None, problems=(problem,))
