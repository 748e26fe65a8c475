"""``python -m tests.soak [MINUTES] [SEED]``: the same seed makes the same faults in the same order."""

import asyncio
import secrets
import signal
import sys

from rich.console import Console
from tests.soak.report import show
from tests.soak.run import Plan, soak


def main(arguments: list[str]) -> int:
    minutes = float(arguments[0]) if arguments else 10.0
    seed = int(arguments[1]) if arguments[1:] else secrets.randbelow(10**6)
    console = Console(width=None if sys.stdout.isatty() else 140)
    # Whoever ends it this way wants all programs to end, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.print(f"soak for {minutes:g} minutes, seed {seed}")
    try:
        outcome = asyncio.run(soak(Plan(seconds=minutes * 60, seed=seed), console))
    except KeyboardInterrupt:
        return 130
    return 0 if show(console, outcome) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
