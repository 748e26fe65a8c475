"""The context keys by which a proxy names the target of a check."""

from typing import Final

TARGET: Final = "authplane.target"
"""The key of a route's context that names the backend: ``Backend/<namespace>/<name>``."""
TARGET_METADATA: Final = "authplane-target"
"""The metadata of a check that says the same, for gRPC servers: their checks have no context."""
