"""The documents of a folder that Contour's users have: manifests, or what kubectl printed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.resources.document_chunks import build_chunk, split_documents
from authplane.resources.documents import Finding
from authplane.resources.yaml.nodes import parse_nodes, plain
from authplane.sources.runtime.listing import is_read, list_files

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SERVER_FIELDS: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
)


class MoveError(Exception):
    """A folder cannot be moved; the message is for the user, and ``findings`` say more."""

    def __init__(self, message: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """One document of a file."""

    file: str
    """Relative to the folder."""
    text: str
    value: Mapping[str, Any]
    """What it says, without types."""
    refs: tuple[Ref, ...]
    """The resources in it that authplane reads."""
    listed: bool = False
    """It comes from a ``List``."""

    @property
    def kind(self) -> str:
        """The kind; empty if there is none."""
        return str(self.value.get("kind") or "")

    @property
    def name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.metadata.get('name') or ''}"

    @property
    def namespace(self) -> str:
        """The namespace; that of the resources that name none is ``default``."""
        return str(self.metadata.get("namespace") or "default")

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The field ``metadata``."""
        return mapping(self.value.get("metadata"))

    @property
    def spec(self) -> Mapping[str, Any]:
        """The field ``spec``."""
        return mapping(self.value.get("spec"))

    @property
    def ours(self) -> bool:
        """Whether authplane reads it."""
        return bool(self.refs)


def read_documents(root: Path) -> tuple[Document, ...]:
    """Read every document below a folder; raises `MoveError` for what cannot be read, `FolderError` for the folder."""
    found: list[Document] = []
    for path, entry in sorted(list_files(root).files.items()):
        if not is_read(path):
            continue
        file = str(Path(path).relative_to(root)) if Path(path) != root else Path(path).name
        try:
            text = Path(entry.opened).read_bytes().decode().removeprefix("\ufeff")
        except OSError as error:
            raise MoveError(f"authplane cannot read {path}: {error.strerror}. Make the file readable.") from error
        except UnicodeDecodeError as error:
            raise MoveError(f"{path} is not UTF-8. Save the file as UTF-8.") from error
        for piece, before in split_documents(text):
            found.extend(_documents(file, path, piece, before))
    return tuple(found)


def mapping(value: object) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _documents(file: str, path: str, text: str, before: int) -> Iterator[Document]:
    parsed = parse_nodes(text)
    if parsed.spots:
        spot = parsed.spots[0]
        raise MoveError(f"{path}:{before + spot.line}: {spot.problem.message.rstrip('.')}. Correct the YAML first.")
    if parsed.root is None:
        return
    value = plain(parsed.root)
    if not isinstance(value, dict):
        return
    if value.get("kind") == "List":
        for each in items(value.get("items")):
            if isinstance(each, dict):
                yield _listed(file, each)
        return
    yield Document(file=file, text=text, value=value, refs=_refs(text))


def _listed(file: str, value: dict[str, Any]) -> Document:
    """Write an item of a List as a document of its own, without the fields that only an API server sets."""
    metadata = {key: each for key, each in mapping(value.get("metadata")).items() if key not in _SERVER_FIELDS}
    annotations = {key: each for key, each in mapping(metadata.get("annotations")).items() if key != _LAST_APPLIED}
    metadata.pop("annotations", None)
    kept = {key: each for key, each in value.items() if key != "status"}
    kept["metadata"] = metadata | ({"annotations": annotations} if annotations else {})
    text = f"---\n{yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)}"
    return Document(file=file, text=text, value=kept, refs=_refs(text), listed=True)


def _refs(text: str) -> tuple[Ref, ...]:
    chunk = build_chunk(text)
    unnamed = (Ref("", "", ""),) if chunk.spots else ()
    return (*(doc.ref for doc in chunk.docs), *unnamed)


def with_text(document: Document, comment: str) -> Document:
    """Return a document with a comment above it."""
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    return replace(document, text=f"---\n{lines}{document.text.removeprefix('---').lstrip(chr(10))}")
