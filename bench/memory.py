"""The memory of a worker after a million checks, against that after the first ten thousand."""

from typing import Final

from bench.h2load import cores, load, message, require_allowed
from bench.processes import bytes_resident, started_here
from bench.servers import our_testserver

_FIRST: Final = 10_000
_ALL: Final = 1_000_000


async def main() -> None:
    """Send checks in portions, each with another path, header and spoofed name, so that memories fill as they would."""
    with cores() as core:
        if core is None:
            return
        async with our_testserver() as port:
            await require_allowed(port, message())
            sizes = []
            for number in range(_ALL // _FIRST):
                name = f"x-{number}" if number % 2 else f"auth-context-{number}"
                await load(port, core, message(f"/allow/{number}", **{name: str(number)}), _FIRST)
                sizes.append(bytes_resident(started_here()))
    first, last, most = sizes[0], sizes[-1], max(sizes)
    print(
        f"  {last / 1e6:.0f} MB after {_ALL} checks (at most {most / 1e6:.0f} MB), {last / first:.2f} times the "
        f"{first / 1e6:.0f} MB after {_FIRST} (limit 1.2)",
        flush=True,
    )
