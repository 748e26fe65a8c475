"""Switches the content of a folder at once, as Kubernetes does with mounted ConfigMaps.

The new content is in a hidden folder beside the old one. One link, `SWITCH`, says which of them applies; one rename
changes it. Other changes in the folder, visible links and old content, have no effect on readers.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from authplane.core.values import dataclass
from authplane.sources.runtime.listing import APPLIED, SWITCH, FolderError, Listing, Stamp, list_files


class ApplyError(Exception):
    """The content cannot be switched, and nothing has changed; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """How many files are there now, and how they differ from those before."""

    files: int
    added: int
    changed: int
    removed: int


def apply_folder(staged: Path, folder: Path) -> Applied:
    """Give ``folder`` the resource files of ``staged`` and no others, at once; raises `ApplyError`."""
    try:
        new = list_files(staged)
        if not Path(new.real).is_dir():
            raise ApplyError(f"{staged} is a file. Put it into a folder.")
        if not new.files:
            raise ApplyError(
                f"{staged} has no files with resources. To remove all resources from {folder}, delete its files."
            )
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            _require_apart(staged, folder)
            old = list_files(folder)
            made = _copy(new, staged, folder, old)
            applied = _compare(made, old, folder)
            _turn(folder, made)
            _tidy(folder, made)
    except (OSError, FolderError) as error:
        raise ApplyError(
            f"Cannot apply {staged} to {folder}: {_why(error).rstrip('.')}. Check that you can read {staged} and write"
            f" to {folder}."
        ) from error
    return applied


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Keep other programs from applying at the same time."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ApplyError(f"Another program is applying files to {folder}. Try again.") from error
        yield
    finally:
        os.close(opened)


def _require_apart(staged: Path, folder: Path) -> None:
    one, other = Path(os.path.realpath(staged)), Path(os.path.realpath(folder))
    if one == other or one in other.parents or other in one.parents:
        raise ApplyError(
            f"{staged} and {folder} are the same folder, or one contains the other. Use two separate folders."
        )


def _copy(new: Listing, staged: Path, folder: Path, old: Listing) -> Path:
    """Write the new content beside the old, with a note of the files that it takes the place of."""
    made = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    try:
        made.chmod(folder.stat().st_mode & 0o777)
        for path, entry in new.files.items():
            place = made / _below(path, staged)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entry.opened, place)
            shutil.copymode(entry.opened, place)
            _sync(place)
        plain = {_below(path, folder): list(entry.stamp) for path, entry in old.files.items() if not entry.unit}
        (made / APPLIED).write_text(json.dumps(plain), encoding="utf-8")
        _sync(made / APPLIED)
        _sync(made)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _compare(made: Path, old: Listing, folder: Path) -> Applied:
    new = {_below(path, made): Path(each.opened) for path, each in list_files(made).files.items()}
    before = {_below(path, folder): Path(each.opened) for path, each in old.files.items()}
    both = new.keys() & before.keys()
    return Applied(
        files=len(new),
        added=len(new.keys() - before.keys()),
        changed=sum(new[each].read_bytes() != before[each].read_bytes() for each in both),
        removed=len(before.keys() - new.keys()),
    )


def _turn(folder: Path, made: Path) -> None:
    draft = folder / f"{SWITCH}.new"
    draft.unlink(missing_ok=True)
    draft.symlink_to(made.name)
    draft.replace(folder / SWITCH)
    _sync(folder)


def _tidy(folder: Path, made: Path) -> None:
    """Remove old content and link the new content; readers of the folder see no difference meanwhile."""
    for below, stamp in json.loads((made / APPLIED).read_text(encoding="utf-8")).items():
        with suppress(OSError):
            if Stamp.of((folder / below).lstat()) == Stamp(*stamp):
                (folder / below).unlink()
    for each in list(folder.iterdir()):
        if each.name.startswith("..") and each.is_dir() and not each.is_symlink() and each != made:
            if (each / APPLIED).exists():
                shutil.rmtree(each, ignore_errors=True)
        elif each.is_symlink() and os.readlink(each) == f"{SWITCH}/{each.name}" and not each.exists():  # noqa: PTH115
            each.unlink()
    for each in made.iterdir():
        if not each.name.startswith(".") and not os.path.lexists(folder / each.name):
            (folder / each.name).symlink_to(f"{SWITCH}/{each.name}")


def _below(path: str, top: Path) -> str:
    return os.path.relpath(path, top)


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
