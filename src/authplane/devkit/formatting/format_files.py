"""Finds YAML files, reads them strictly, and writes them in their one form."""

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Final

from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.devkit.formatting.format_text import format_text
from authplane.devkit.policies.policy_folders import SUFFIXES, find_tests
from authplane.devkit.strict_files import LARGEST, parse_text
from authplane.resources.document_chunks import split_documents
from authplane.resources.documents import Finding, Place
from authplane.resources.yaml.nodes import parse_nodes
from authplane.sources.runtime.listing import list_files, shown

_YAML: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedFile:
    """A file, and what becomes of it."""

    path: Path
    before: str = ""
    after: str = ""
    kept: tuple[int, ...] = ()
    """Lines at which documents begin that stay as they are."""
    findings: tuple[Finding, ...] = ()
    """Why the file cannot be read; it is not changed then."""

    @property
    def changes(self) -> bool:
        """Whether the file is in another form now."""
        return not self.findings and self.before != self.after

    @property
    def diff(self) -> str:
        """The difference, as ``diff -u`` writes it."""
        name = shown(str(self.path))
        lines = unified_diff(self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def find_yaml(roots: Iterable[Path]) -> tuple[Path, ...]:
    """Return files, and the YAML files below folders, each once; raises `FolderError`."""
    found: dict[str, Path] = {}
    for root in roots:
        paths = {*map(Path, list_files(root).files), *find_tests(root)}
        for path in sorted(paths):
            if not root.is_dir() or path.name.endswith(_YAML):
                found.setdefault(os.path.realpath(path), path)
    return tuple(found.values())


def format_file(path: Path) -> FormattedFile:
    """Read a file and format its text."""
    try:
        with path.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        why = f"Cannot read the file: {error.strerror}. Check the path and its permissions."
        return FormattedFile(path=path, findings=(_whole(path, "FileUnreadable", why),))
    findings = _findings(path, content)
    if findings:
        return FormattedFile(path=path, findings=findings)
    before = content.decode()
    formatted = format_text(before)
    return FormattedFile(path=path, before=before, after=formatted.text, kept=formatted.kept)


def _findings(path: Path, content: bytes) -> tuple[Finding, ...]:
    """Return why a file cannot be read."""
    name = shown(str(path))
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        why = f"The byte 0x{content[error.start]:02X} is not UTF-8. Save the file as UTF-8."
        place = Place(name, content.count(b"\n", 0, error.start) + 1, 1)
        return (Finding(place, None, Problem((), "EncodingInvalid", why)),)
    if len(content) > LARGEST:
        why = f"The file is larger than {LARGEST} bytes. Split it into several files."
        return (_whole(path, "FileUnreadable", why),)
    if path.name.endswith(SUFFIXES):
        # Bodies of requests may have the tag !!binary.
        return parse_text(name, content, binary="body").findings if text.strip() else ()
    return tuple(
        Finding(Place(name, before + line, column), None, problem)
        for piece, before in split_documents(text)
        for problem, line, column in parse_nodes(piece).spots
    )


def _whole(path: Path, reason: str, why: str) -> Finding:
    return Finding(Place(shown(str(path)), 0, 0), None, Problem((), reason, why))


def write_file(file: FormattedFile) -> None:
    """Replace a file at once by its new content, with the same mode and owner; raises OSError.

    Who reads it meanwhile finds the old content or the new one. Of a link, the file that it leads to is replaced.
    """
    path = Path(os.path.realpath(file.path))
    found = path.stat()
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(file.after.encode())
            opened.flush()
            with suppress(PermissionError):
                os.fchown(handle, found.st_uid, found.st_gid)
            os.fchmod(handle, stat.S_IMODE(found.st_mode))
            os.fsync(handle)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
