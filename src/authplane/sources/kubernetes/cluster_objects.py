"""The objects of a cluster as documents of a library: those that concern this gateway, and no others.

Most Secrets, ConfigMaps, Services and EndpointSlices of a cluster are used by nothing here, and most likely never
will be. Such objects are put on a shelf, packed, until some document has a word that is their name. HTTPProxies,
Gateways and HTTPRoutes of other classes are on the shelf too: they are not there, for us.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.resources.kinds.contour_file import KEY
from authplane.resources.kinds.core import AUTH_TYPE, SERVICE_LABEL
from authplane.sources.document_versions import Library
from authplane.sources.kubernetes.api_kinds import ApiKind
from authplane.sources.kubernetes.object_classes import Classes
from authplane.sources.kubernetes.object_documents import document_of, object_source, text_of, words_in
from authplane.sources.kubernetes.reflector_steps import Change, Gone, Put

SHELVED: Final = frozenset({"Secret", "ConfigMap", "Service", "EndpointSlice"})
"""Kinds that are read only if something names them."""
_WORDLESS: Final = frozenset({"secrets", "services", "endpointslices.discovery.k8s.io"})
"""Their objects name no others."""
_PACKED: Final = 512
"""A longer text is packed, in bytes."""


@dataclass(frozen=True, slots=True)
class _Shelved:
    """A document that is not read for now."""

    name: str
    """The word by which others name it."""
    kind: str
    packed: bytes

    @classmethod
    def of(cls, name: str, kind: str, text: str) -> "_Shelved":
        raw = text.encode()
        return cls(name, kind, zlib.compress(raw, 1) if len(raw) > _PACKED else raw)

    @property
    def text(self) -> str:
        return (self.packed if self.packed[:1] == b"{" else zlib.decompress(self.packed)).decode()


class ClusterObjects:
    """Takes the changes of a cluster and tells the library about them."""

    def __init__(self, library: Library, *, classes: bool = True) -> None:
        self._library = library
        self._texts: dict[str, int] = {}
        """What is in the library, by file, as hashes: most changes of an object do not concern what we read of it."""
        self._shelf: dict[str, _Shelved] = {}
        self._named: dict[str, set[str]] = {}
        """The files on the shelf that wait for a word."""
        self._words: dict[str, frozenset[str]] = {}
        self._uses: Counter[str] = Counter()
        self._classes = Classes(gateways=classes)
        self._expected: set[str] = set()
        """Files of an earlier run of which nothing was heard yet."""

    def restored(self, texts: Mapping[str, str]) -> None:
        """Note what was in force before this program started: it may be gone, and needs what it names until then."""
        self._expected = set(texts)
        for file, text in texts.items():
            document = json.loads(text)
            if document.get("kind") not in SHELVED:
                self._count_words(file, words_in(document))

    def listed(self, kind: ApiKind, namespace: str = "") -> Iterator[str]:
        """Note that a list of a kind is complete, and yield the files that are gone since an earlier run."""
        prefix = f"{kind.resource}/{namespace}/" if namespace else f"{kind.resource}/"
        for file in sorted(each for each in self._expected if each.startswith(prefix)):
            self._expected.discard(file)
            self._forget_words(file)
            self._library.removed(file)
            yield file

    def take(self, kind: ApiKind, change: Change) -> str | None:
        """Take a change; return the file whose content is another now, for the library."""
        file = file_of(kind, change.name)
        self._expected.discard(file)
        match change:
            case Gone(name):
                self._classes.forget(kind.kind, name)
                self._unshelve(file)
                self._forget_words(file)
                if self._texts.pop(file, None) is None and self._library.said(file) is None:
                    return None
                self._library.removed(file)
                return file
            case Put(name, thing):
                return self._put(kind.kind, file, name, document_of(thing))

    def reclassify(self) -> list[str]:
        """Move objects whose class is ours now, or no longer; return their files."""
        loaded = self._library.current()
        changed = self._classes.update(loaded.resources)
        moved = [file for key, file in changed if (file in self._shelf) is self._classes.ours(*key)]
        for file in moved:
            if file in self._shelf:
                self._read(file, self._unshelve(file) or "")
            else:
                source = self._library.said(file)
                self._texts.pop(file, None)
                self._forget_words(file)
                if source is not None:
                    self._library.removed(file)
                    self._put_away(file, _Shelved.of("", "", source.pieces[0][1]))
        return moved

    def _put(self, kind: str, file: str, name: ObjectName, document: dict[str, Any]) -> str | None:
        text = text_of(document)
        if kind in SHELVED and not _always(document):
            word = _word(kind, name, document)
            if not self._uses[word]:
                return self._shelve(file, _Shelved.of(word, kind, text))
        elif not self._classes.note(kind, name, file, document):
            return self._shelve(file, _Shelved.of("", kind, text))
        self._unshelve(file)
        return self._read(file, text)

    def _read(self, file: str, text: str) -> str | None:
        if self._texts.get(file) == hash(text):
            return None
        self._texts[file] = hash(text)
        source = object_source(text)
        self._library.replaced(file, source)
        if file.partition("/")[0] not in _WORDLESS:
            words = words_in(json.loads(text))
            # While a version has errors, an earlier one may be in force, with what it names.
            self._count_words(file, words if source.usable else words | self._words.get(file, frozenset()))
        return file

    def _shelve(self, file: str, shelved: _Shelved) -> str | None:
        """Put a document away; one that was read is removed, unless something may still use it."""
        self._put_away(file, shelved)
        self._forget_words(file)
        if self._texts.pop(file, None) is None and self._library.said(file) is None:
            return None
        self._library.removed(file)
        return file

    def _put_away(self, file: str, shelved: _Shelved) -> None:
        self._shelf[file] = shelved
        if shelved.name:
            self._named.setdefault(shelved.name, set()).add(file)

    def _unshelve(self, file: str) -> str | None:
        shelved = self._shelf.pop(file, None)
        if shelved is None:
            return None
        waiting = self._named.get(shelved.name)
        if waiting is not None:
            waiting.discard(file)
            if not waiting:
                del self._named[shelved.name]
        return shelved.text

    def _count_words(self, file: str, words: frozenset[str]) -> None:
        before = self._words.get(file, frozenset())
        if words == before:
            return
        self._words[file] = words
        self._uses.update(words - before)
        self._release(before - words)
        for word in words - before:
            for waiting in sorted(self._named.get(word, ())):
                self._read(waiting, self._unshelve(waiting) or "")

    def _forget_words(self, file: str) -> None:
        self._release(self._words.pop(file, frozenset()))

    def _release(self, words: frozenset[str]) -> None:
        for word in words:
            self._uses[word] -= 1
            if not self._uses[word]:
                del self._uses[word]


def file_of(kind: ApiKind, name: ObjectName) -> str:
    """Return the name of the file that stands for an object: ``httpproxies.projectcontour.io/shop/web``."""
    return f"{kind.resource}/{name}" if name.namespace else f"{kind.resource}/{name.name}"


def _always(document: Mapping[str, Any]) -> bool:
    """Tell whether an object matters without being named: users of basic authentication, Contour's configuration."""
    meta, data = document.get("metadata"), document.get("data")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    return (isinstance(annotations, dict) and AUTH_TYPE in annotations) or (
        document.get("kind") == "ConfigMap" and isinstance(data, dict) and KEY in data
    )


def _word(kind: str, name: ObjectName, document: Mapping[str, Any]) -> str:
    """Return the word by which documents name an object; an EndpointSlice comes with its Service."""
    if kind != "EndpointSlice":
        return name.name
    meta = document.get("metadata")
    labels = meta.get("labels") if isinstance(meta, dict) else None
    return str(labels.get(SERVICE_LABEL) or "") if isinstance(labels, dict) else ""
