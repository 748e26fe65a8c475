"""Calls an external service once, for commands that exit."""

import asyncio

from authplane.authserver.backends.runtime.external_services import Endpoints, external_services
from authplane.policy.verdicts.effects import Ask, Outcome


def ask_once(endpoints: Endpoints, ask: Ask) -> Outcome:
    """Ask as a server does, over a connection that is closed afterwards."""
    return asyncio.run(_ask(endpoints, ask))


async def _ask(endpoints: Endpoints, ask: Ask) -> Outcome:
    async with external_services() as services:
        services.publish(endpoints)
        return await services.ask(ask)
