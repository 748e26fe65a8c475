"""The echo origin as a program."""

from typing import Final

import structlog

from authplane.io.echo import serve_echo
from authplane.io.listen import Address
from authplane.io.serve import Stop, run_program

log: Final = structlog.stdlib.get_logger()


def serve_echo_origin(address: Address) -> None:
    """Serve the echo origin until the program is stopped."""

    async def program(stop: Stop) -> None:
        async with serve_echo(address) as bound:
            log.info("echo origin listens", address=str(bound))
            await stop.asked()

    run_program(program)
