"""The argument that most commands share: a folder of resources."""

from pathlib import Path
from typing import Annotated, TypeAlias

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Argument
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.sources.runtime.folder import Folder, FolderError

FolderArgument: TypeAlias = Annotated[
    Path, Argument(metavar="DIR", help="A folder of YAML files, at any depth; or one file.")
]


def read_generation(root: Path) -> Generation:
    """Read a folder and build everything that follows; a folder that cannot be read ends the command."""
    try:
        folder = Folder(root)
        folder.scan()
    except FolderError as error:
        fail(str(error), status=2)
    return build_generation(folder.library.current())
