"""A folder and the configuration that it compiles to."""

from authplane.cli.shared.cluster_options import Place
from authplane.cli.shared.read_place import read_place
from authplane.controlplane.serving.generation import Generation, build_generation


def read_generation(place: Place) -> Generation:
    """Read and compile a folder or a cluster; exit with an error if it cannot be read."""
    return build_generation(read_place(place))
