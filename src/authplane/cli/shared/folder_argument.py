"""The argument that most commands share: a folder of resources."""

from pathlib import Path
from typing import Annotated, TypeAlias

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Argument
from authplane.sources.document_versions import Loaded
from authplane.sources.runtime.read_folder import Folder, FolderError

FolderArgument: TypeAlias = Annotated[
    Path, Argument(metavar="DIR", help="Folder with YAML files at any depth, or one file.")
]


def read_folder(root: Path) -> Loaded:
    """Read a folder; exit with an error if it cannot be read."""
    try:
        folder = Folder(root)
        folder.scan()
    except FolderError as error:
        fail(str(error), status=2)
    return folder.library.current()
