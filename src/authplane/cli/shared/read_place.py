"""Reads the resources of a folder or a cluster once, for commands that then end."""

from pathlib import Path

from authplane.cli.shared.cluster_options import Place
from authplane.cli.shared.folder_argument import read_folder
from authplane.policy.rules.access_settings import Options
from authplane.resources.loaded_resources import Loaded


def read_place(place: Place) -> Loaded:
    """Read a folder or a cluster; exit with an error if it cannot be read."""
    if isinstance(place, Path):
        return read_folder(place)
    from authplane.cli.shared.chosen_cluster import read_chosen  # noqa: PLC0415 (a folder needs no HTTP client)

    return read_chosen(place)


def options_at(place: Place) -> Options:
    """Return the options of policies there: the API server of a cluster reviews tokens."""
    return Options(token_reviews=not isinstance(place, Path))


def root_at(place: Place) -> Path:
    """Return the path by which a running control plane of a folder or cluster is found."""
    if isinstance(place, Path):
        return place
    from authplane.cli.shared.chosen_cluster import login_of, part_of, root_of  # noqa: PLC0415 (as above)

    return root_of(login_of(place).server, part_of(place))
