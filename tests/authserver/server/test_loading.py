"""What a process loads: memory and time that every worker takes."""

import subprocess
import sys
from typing import Final

import pytest
from tests.support.eventually import START_LIMIT

PROGRAM: Final = """\
import sys
import authplane.authserver.fronts.runtime.pyvoy.worker, authplane.authserver.runtime.server_backends
costly = ("authplane.cel", "authplane.policy.compile", "authplane.policy.decide", "authplane.policy.identity.tokens",
          "authplane.policy.mcp", "authplane.policy.rules", "cel_expr_python", "cryptography", "joserfc", "mcp",
          "opentelemetry")
print([name for name in sorted(sys.modules) if name.startswith(costly)])
"""


@pytest.mark.real
def test_a_server_without_policies_loads_nothing_that_only_they_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=START_LIMIT
    )
    assert done.stdout == "[]\n"
