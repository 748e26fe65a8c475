"""A folder with everything that follows from it."""

from pathlib import Path

from authplane.cli.shared.folder_argument import read_folder
from authplane.controlplane.serving.generation import Generation, build_generation


def read_generation(root: Path) -> Generation:
    """Read a folder and build everything that follows; a folder that cannot be read ends the command."""
    return build_generation(read_folder(root))
