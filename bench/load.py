"""Reading folders: documents per second, and what one change costs afterwards."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.gateways.contour_gateway import proxy

from authplane.controlplane.serving.generation import build_generation
from authplane.sources.runtime.read_folder import Folder

_SIZES = (1_000, 10_000)


async def main() -> None:
    """Measure a folder with a file for each HTTPProxy."""
    for size in _SIZES:
        with TemporaryDirectory() as name:
            root = Path(name)
            for index in range(size):
                _path(root, index).parent.mkdir(exist_ok=True)
                _path(root, index).write_text(proxy(f"h{index}.example", name=f"h{index}"), encoding="utf-8")
            folder = Folder(root)
            first = _timed(folder)
            _path(root, 0).write_text(proxy("changed.example", name="h0"), encoding="utf-8")
            again = _timed(folder)
            print(
                f"  {size} files: {first:.2f} s at first ({size / first:.0f} documents/s), "
                f"{again * 1000:.0f} ms after one changed (ratio {first / again:.0f})",
                flush=True,
            )


def _path(root: Path, index: int) -> Path:
    return root / str(index % 100) / f"{index}.yaml"


def _timed(folder: Folder) -> float:
    begun = time.perf_counter()
    folder.scan()
    build_generation(folder.library.current())
    return time.perf_counter() - begun
