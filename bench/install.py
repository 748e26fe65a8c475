"""What an installation weighs and how soon it starts: the plain package, and with the extra for gateways.

Processor time, the best of some rounds. Both get a virtual environment of their own, made by pip from our wheel.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.installations import ROOT, Installation, build, install

_EXTRAS: Final[dict[str, tuple[str, ...]]] = {"authplane": (), "authplane[gateway]": ("gateway",)}
_EXAMPLE: Final = ROOT / "examples" / "oidc-tools"


async def main() -> None:
    """Measure each installation."""
    await asyncio.to_thread(_measure_all)


def _measure_all() -> None:
    with TemporaryDirectory() as folder:
        build(Path(folder), "wheel")
        [wheel] = Path(folder).glob("*.whl")
        for number, (name, extras) in enumerate(_EXTRAS.items()):
            _measure(name, install(Path(folder) / str(number), wheel, extras))


def _measure(name: str, made: Installation) -> None:
    nothing = made.processor_time(made.python, "-c", "pass")
    library = made.processor_time(made.python, "-c", "import authplane.grpc") - nothing
    listed = made.processor_time(made.authplane, "--help")
    validated = made.processor_time(made.authplane, "validate", str(_EXAMPLE))
    print(
        f"  {name}: {made.size() / 1e6:.0f} MB in {len(made.packages())} packages; import authplane.grpc"
        f" {library * 1000:.0f} ms, --help {listed * 1000:.0f} ms (limit 300), validate {validated * 1000:.0f} ms"
        f" of processor time; Python itself {nothing * 1000:.0f} ms",
        flush=True,
    )
