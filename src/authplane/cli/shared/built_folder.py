"""A folder and the configuration that it compiles to."""

from authplane.cli.shared.cluster_options import Place
from authplane.cli.shared.read_place import options_at, read_place
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.policy.compile.compile_policies import PolicyCompiler


def read_generation(place: Place) -> Generation:
    """Read and compile a folder or a cluster; exit with an error if it cannot be read."""
    return build_generation(read_place(place), compiler=PolicyCompiler(options_at(place)))
