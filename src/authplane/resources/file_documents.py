"""The content of one file as documents."""

from collections.abc import Iterable, MutableMapping
from functools import cached_property
from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.resources.document_chunks import Chunk, is_error, split_documents
from authplane.resources.document_keys import key_of
from authplane.resources.stencils import Stencils
from authplane.resources.yaml.nodes import Spot


# Without slots: a cached property needs a place to keep its value.
@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """The documents of a file, and the number of lines before each."""

    chunks: tuple[Chunk, ...] = ()
    lines: tuple[int, ...] = ()
    damage: Spot | None = None
    """Why the whole file cannot be read."""
    blank: bool = False
    """There is not even a comment: an editor may be about to write it."""

    @cached_property
    def faulty(self) -> tuple[tuple[Chunk, int], ...]:
        """The documents with problems and the lines before each."""
        return tuple([(chunk, line) for chunk, line in zip(self.chunks, self.lines, strict=True) if chunk.faulty])

    @property
    def sound(self) -> bool:
        """Tell that nothing is wrong with the file by itself."""
        return self.damage is None and not self.blank and not self.faulty

    @cached_property
    def usable(self) -> bool:
        """Tell that every document of the file can be used."""
        return self.damage is None and not any(map(has_error, (chunk for chunk, _ in self.faulty)))

    @property
    def nameless(self) -> bool:
        """Tell that a part of the file cannot be read, so that it may be any resource."""
        return self.damage is not None or any(any(map(is_error, chunk.spots)) for chunk, _ in self.faulty)

    @property
    def pieces(self) -> tuple[tuple[int, str], ...]:
        """The documents as texts, each with the lines before it: what `source_of` takes."""
        return tuple((line, chunk.text) for chunk, line in zip(self.chunks, self.lines, strict=True))

    @cached_property
    def names(self) -> frozenset[Ref]:
        """What the file declares, well or badly."""
        return frozenset(key_of(doc.ref) for chunk in self.chunks for doc in chunk.docs)

    @cached_property
    def starts(self) -> dict[Chunk, list[int]]:
        """The lines before each document, by document: the same text may occur several times."""
        found: dict[Chunk, list[int]] = {}
        for chunk, line in zip(self.chunks, self.lines, strict=True):
            found.setdefault(chunk, []).append(line)
        return found


NO_SOURCE: Final = Source()


def has_error(chunk: Chunk) -> bool:
    """Tell whether something in a document keeps it from being used."""
    return any(map(is_error, chunk.spots)) or any(doc.resource is None for doc in chunk.docs)


def parse_source(content: bytes, known: MutableMapping[str, Chunk], stencils: Stencils) -> Source:
    """Read a file's content; documents in ``known`` are not read again, and new ones are added to it."""
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        return Source(damage=_not_utf8(content, error.start))
    if not text or text.isspace():
        return Source(blank=True)
    return source_of(((before, piece) for piece, before in split_documents(text)), known, stencils)


def source_of(pieces: Iterable[tuple[int, str]], known: MutableMapping[str, Chunk], stencils: Stencils) -> Source:
    """Make a file's content again from its documents, each with the lines before it."""
    chunks: list[Chunk] = []
    lines: list[int] = []
    for before, piece in pieces:
        chunk = known.get(piece)
        if chunk is None:
            chunk = known[piece] = stencils.build(piece)
        chunks.append(chunk)
        lines.append(before)
    return Source(chunks=tuple(chunks), lines=tuple(lines))


def unreadable_source(why: str) -> Source:
    """Return the source of a file that cannot be read."""
    return Source(damage=Spot(Problem((), "FileUnreadable", why), 0, 0))


def _not_utf8(content: bytes, at: int) -> Spot:
    line_start = content.rfind(b"\n", 0, at) + 1
    column = len(content[line_start:at].decode(errors="replace")) + 1
    message = f"Byte 0x{content[at]:02X} is not UTF-8. Save the file as UTF-8."
    return Spot(Problem((), "EncodingInvalid", message), content.count(b"\n", 0, at) + 1, column)
