"""The echo origin as a program."""

from typing import Final

import structlog

from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.run_until_stopped import Stop, run_program
from authplane.runtime.servers.listen import Address

log: Final = structlog.stdlib.get_logger()


def serve_echo_origin(address: Address) -> None:
    """Serve the echo origin until the program is stopped."""

    async def program(stop: Stop) -> None:
        async with serve_echo(address) as bound:
            log.info("echo origin started", address=str(bound))
            await stop.asked()

    run_program(program)
