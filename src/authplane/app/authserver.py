"""The authorization server as a program."""

from typing import Final

import structlog

from authplane.io.authz import AuthzSettings, serve_authz
from authplane.io.serve import Stop, run_program
from authplane.policy.testserver import Mode, TestServer

log: Final = structlog.stdlib.get_logger()


def serve_testserver(mode: Mode, settings: AuthzSettings) -> None:
    """Serve the test backend until the program is stopped."""

    async def program(stop: Stop) -> None:
        async with serve_authz(TestServer(mode=mode), settings) as address:
            log.info("authorization server listens", address=str(address), tls=settings.tls is not None, mode=mode)
            await stop.asked()

    run_program(program)
