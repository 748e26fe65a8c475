"""The socket on which to query the control plane of a folder, derived from the folder's path.

The socket is in a folder that only its owner can enter: the same user may inspect the processes anyway.
"""

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from authplane.runtime.clients.ask_page import NotAnsweredError, ask_page
from authplane.runtime.servers.listen import UnixAddress

_LIMIT: Final = 2.0
_NAME_DIGITS: Final = 16


class NotLiveError(Exception):
    """No control plane answers for the folder."""


def xds_address() -> UnixAddress:
    """Return the default socket on which a control plane serves xDS, in a private folder."""
    return UnixAddress(path=str(_private_place() / "xds.sock"))


def live_address(root: Path, part: str = "") -> UnixAddress:
    """Name the socket of a folder's control plane, or of another part, and make sure that its place is private."""
    place = _private_place()
    digest = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:_NAME_DIGITS]
    return UnixAddress(path=str(place / f"{digest}{part}.sock"))


def _private_place() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    try:
        place = Path(runtime) / "authplane" if runtime else Path(tempfile.gettempdir()) / f"authplane-{os.getuid()}"
    except FileNotFoundError as error:
        raise NotLiveError("There is no folder for temporary files. Set XDG_RUNTIME_DIR.") from error
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise NotLiveError(f"Cannot use {place}: {error.strerror}. Set XDG_RUNTIME_DIR to another folder.") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise NotLiveError(
            f"{place} is not a private folder of this user. Set its owner to this user and its mode to 0700."
        )
    return place


def ask_live(root: Path, target: str) -> bytes:
    """Ask the control plane that serves ``root``; raises `NotLiveError` if none answers."""
    try:
        return ask_page(live_address(root), target, limit=_LIMIT)
    except NotAnsweredError as error:
        cause = error.__cause__
        told = (
            f"No control plane serves {root}. Run 'authplane control' with this folder."
            if cause
            else f"The control plane of {root} {error}. Restart it."
        )
        raise NotLiveError(told) from error
