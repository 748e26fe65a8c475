"""A folder and the configuration that it compiles to."""

from pathlib import Path

from authplane.cli.shared.folder_argument import read_folder
from authplane.controlplane.serving.generation import Generation, build_generation


def read_generation(root: Path) -> Generation:
    """Read and compile a folder; exit with an error if it cannot be read."""
    return build_generation(read_folder(root))
