"""An object of an API server as a document, without a YAML parser between.

The text of such a document is compact JSON, so that it can be kept on disk and read again. It has what we read: nothing
that the API server or other controllers write about the object.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from authplane.core.problems import Problem
from authplane.policy.compile.compile_policies import CONTROLLER
from authplane.resources.catalogue import POLICIES, TLS_POLICY
from authplane.resources.document_chunks import Chunk, chunk_of
from authplane.resources.file_documents import Source
from authplane.resources.yaml.nodes import DEEPEST, SYNTAX, Entry, Fields, Items, Node, Parsed, Scalar, Spot

_META: Final = ("name", "namespace", "labels", "annotations", "generation", "creationTimestamp")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_AROUND: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_AIMED: Final = POLICIES | {TLS_POLICY}
_FIRST_VERSION: Final = "agentic.networking.x-k8s.io/v0alpha0"
_REREAD: Final = ("agentic.networking.x-k8s.io/v1alpha1", "XAccessPolicy")
_WORD: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_LONGEST: Final = 64 * 1024
"""A longer text names nothing: it is a bundle of certificates, or a page."""


def document_of(thing: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an object is read."""
    given = _mapping(thing.get("metadata"))
    meta = {name: given[name] for name in _META if name in given}
    if _LAST_APPLIED in _mapping(meta.get("annotations")):
        meta["annotations"] = {name: text for name, text in meta["annotations"].items() if name != _LAST_APPLIED}
    made = {"apiVersion": _meant_version(thing), "kind": thing.get("kind"), "metadata": meta}
    made |= {name: value for name, value in thing.items() if name not in _AROUND}
    ancestors = _ancestors(thing) if thing.get("kind") in _AIMED else []
    return made | ({"status": {"ancestors": ancestors}} if ancestors else {})


def _meant_version(thing: Mapping[str, Any]) -> object:
    """Return the version in which the author wrote an object whose versions differ in their meaning.

    An API server shows an XAccessPolicy of v0alpha0 as one of v1alpha1 too, where a rule without ``authorization``
    grants everything. What it notes about the writers of ``spec`` tells the two apart.
    """
    given = thing.get("apiVersion")
    if (given, thing.get("kind")) != _REREAD:
        return given
    writers = _mapping(thing.get("metadata")).get("managedFields")
    entries = [_mapping(each) for each in writers] if isinstance(writers, list) else []
    versions = {each.get("apiVersion") for each in entries if "f:spec" in _mapping(each.get("fieldsV1"))}
    return _FIRST_VERSION if versions == {_FIRST_VERSION} else given


def text_of(document: Mapping[str, Any]) -> str:
    """Write a document."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def object_source(text: str) -> Source:
    """Read a document, as the only one of a file."""
    return Source(chunks=(object_chunk(text),), lines=(0,))


def object_chunk(text: str) -> Chunk:
    """Read a document."""
    try:
        root: Node | None = _node(json.loads(text), 0)
    except (_UnusableError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, _UnusableError) else "The object is not JSON. Write it again."
        return chunk_of(text, Parsed(None, (Spot(Problem((), SYNTAX, why), 0, 0),)), lines=False)
    return chunk_of(text, Parsed(root, ()), lines=False)


def words_in(document: Mapping[str, Any]) -> frozenset[str]:
    """Return every word by which a document may name another object, and many more.

    Which fields are references is not asked here, so that no new field can be forgotten.
    """
    return frozenset(
        word
        for name, value in document.items()
        if name not in _AROUND
        for text in _texts(value)
        if len(text) <= _LONGEST and "-----BEGIN" not in text
        for found in _WORD.findall(text)
        # A host name such as tools.shop.svc.cluster.local names the Service tools.
        for word in ((found, found.partition(".")[0]) if "." in found else (found,))
    )


class _UnusableError(Exception):
    """A value that no document can have."""


def _node(value: Any, depth: int) -> Node:
    if isinstance(value, str):
        if "\0" in value:
            raise _UnusableError("The character U+0000 is not allowed. Remove it.")
        return Scalar(value, False, 0, 0)
    if depth >= DEEPEST and isinstance(value, dict | list):
        raise _UnusableError(f"Lists and mappings are nested more than {DEEPEST} levels deep. Use fewer levels.")
    if isinstance(value, dict):
        return Fields({name: Entry(_node(each, depth + 1), 0, 0) for name, each in value.items()}, 0, 0)
    if isinstance(value, list):
        return Items(tuple([_node(each, depth + 1) for each in value]), 0, 0)
    return Scalar("null" if value is None else json.dumps(value), True, 0, 0)


def _ancestors(thing: Mapping[str, Any]) -> list[Any]:
    """Return what other controllers say of a policy; what we say ourselves is no reason to read it again."""
    found = _mapping(thing.get("status")).get("ancestors")
    entries = found if isinstance(found, list) else []
    return [each for each in entries if _mapping(each).get("controllerName") != CONTROLLER]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
