"""Texts that may be policies or settings and cannot be read at all, not even their names."""

from collections.abc import Container, Iterable, Mapping
from typing import Final

from authplane.core.names import Ref
from authplane.resources.catalogue import POLICIES, TLS_POLICY
from authplane.resources.contour_files import BARE_REF
from authplane.resources.document_chunks import Chunk, Doc, is_error
from authplane.resources.documents import UnreadProxy
from authplane.resources.file_documents import Source
from authplane.resources.kinds.contour import HTTPProxy
from authplane.resources.kinds.contour_file import GLOBAL, KEY

_PROXY: Final = HTTPProxy.__name__
_WORDS: Final = tuple(sorted(POLICIES))
_SETTINGS: Final = {
    "AuthplaneConfiguration": "AuthplaneConfig",
    "ContourConfiguration": "ContourConfig",
    "ContourDeployment": "ContourDeploy",
}
"""Kinds with at most one object, and a word that an unreadable text of that kind contains."""


def doubt_in(sources: Mapping[str, Source]) -> str:
    """Name a file that may contain a policy and cannot be read; empty if there is none.

    The targets of such a policy are unknown, so no request may be allowed.
    """
    doubtful = sorted(file for file, source in sources.items() if _may_hold_policy(source))
    return f"{doubtful[0]} may contain a policy and cannot be read" if doubtful else ""


def lost_settings(sources: Mapping[str, Source], known: Container[Ref]) -> frozenset[Ref]:
    """Return the configurations that some text seems to be, and of which nothing is ``known``; they have no names.

    Without settings the defaults apply, and those may be wider than what the author of the invalid document wrote.
    """
    texts = [chunk.text for source in sources.values() for chunk, _ in source.faulty if any(map(is_error, chunk.spots))]
    missing = {Ref(kind, "", ""): word for kind, word in _SETTINGS.items()}
    return frozenset(ref for ref, word in missing.items() if ref not in known and any(word in text for text in texts))


def lost_files(sources: Mapping[str, Source]) -> frozenset[Ref]:
    """Return Contour's configuration file if some text may be one and cannot be read: it may authorize all hosts."""
    lost = any(_may_be_file(file, source) for file, source in sources.items())
    return frozenset({BARE_REF}) if lost else frozenset()


def _may_be_file(file: str, source: Source) -> bool:
    named = file.rpartition("/")[2] == KEY
    texts = [chunk.text for chunk, _ in source.faulty if any(map(is_error, chunk.spots))]
    return (named and source.damage is not None) or any(named or GLOBAL in text for text in texts)


def unread_proxies(broken: Iterable[Doc], sources: Mapping[str, Source]) -> tuple[UnreadProxy, ...]:
    """Return the HTTPProxies among the broken documents, and the unreadable files that may contain one."""
    found = {
        UnreadProxy(str(doc.ref), doc.ref.namespace, doc.host, doc.ingress_class)
        for doc in broken
        if doc.ref.kind == _PROXY
    }
    for file, source in sources.items():
        lost = any(_PROXY in chunk.text and any(map(is_error, chunk.spots)) for chunk, _ in source.faulty)
        if source.damage is not None or lost:
            found.add(UnreadProxy(file, "", None))
    return tuple(sorted(found, key=lambda each: (each.who, each.host or "")))


def unread_tls_policies(sources: Mapping[str, Source]) -> Mapping[Ref, None]:
    """Return the unreadable files that may contain a BackendTLSPolicy, as policies of no namespace."""
    return {
        Ref(TLS_POLICY, "", file): None
        for file, source in sources.items()
        if any(TLS_POLICY in chunk.text and any(map(is_error, chunk.spots)) for chunk, _ in source.faulty)
    }


def _may_hold_policy(source: Source) -> bool:
    return source.damage is not None or any(_may_be_policy(chunk) for chunk, _ in source.faulty)


def _may_be_policy(chunk: Chunk) -> bool:
    # A word can be spelled with escapes, and a text with escapes may hide it.
    spelled = any(word in chunk.text for word in _WORDS) or "\\" in chunk.text
    return spelled and any(is_error(spot) for spot in chunk.spots)
