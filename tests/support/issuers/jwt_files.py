"""Files that hold tokens, as whoever sends tokens finds them."""

import json
from base64 import urlsafe_b64encode
from pathlib import Path


def part(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def token(expires: float, name: str = "someone") -> str:
    """Make a token with a signature of the right length; nobody checks more."""
    return f"{part({'alg': 'ES256'})}.{part({'sub': name, 'exp': expires})}.{part('s' * 64)}"


class Projected:
    """A folder as Kubernetes writes it: its files are links through ``..data``, which is swapped at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.path = folder / "token"

    def write(self, text: str) -> None:
        self._count += 1
        version = self._folder / f"..version-{self._count}"
        version.mkdir()
        (version / "token").write_text(text)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self._folder / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to("..data/token")
