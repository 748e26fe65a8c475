"""Writes the files of a new folder, and overwrites nothing without the user's consent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from authplane.core.text import name_some

_MOST_NAMED: Final = 5


class WriteError(Exception):
    """The folder cannot be written; the message is for the user."""


def write_files(root: Path, files: Mapping[str, str], *, private: frozenset[str], force: bool) -> None:
    """Write files below a folder, those in ``private`` for their owner alone; raises `WriteError`.

    Without ``force``, nothing is written if one of the files exists.
    """
    outside = next((name for name in files if not (root / name).resolve().is_relative_to(root.resolve())), None)
    if outside is not None:
        raise WriteError(f"{root / outside} leads to a path outside {root}. Use a folder without links.")
    existing = sorted(name for name in files if (root / name).exists())
    if existing and not force:
        names = name_some([str(root / name) for name in existing], _MOST_NAMED)
        raise WriteError(f"authplane does not overwrite existing files: {names}. Use another folder, or add --force.")
    if root.exists() and not root.is_dir():
        raise WriteError(f"{root} is not a folder. Use another path.")
    try:
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, text, mode=0o600 if name in private else 0o644)
    except OSError as error:
        why = f"authplane cannot write {error.filename or root}: {error.strerror}."
        raise WriteError(f"{why} Use a folder that you can write to.") from error


def _write(path: Path, text: str, *, mode: int) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=mode)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
