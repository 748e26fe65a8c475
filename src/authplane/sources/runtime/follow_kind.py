"""Performs the steps of a reflector: requests and watches, for ever."""

import asyncio
import random
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeAlias, assert_never

from authplane.runtime.kubernetes.api_client import (
    ApiClient,
    ApiResponse,
    ApiStatusError,
    ApiTooLargeError,
    ApiUnreachableError,
)
from authplane.sources.kubernetes.reflector import Changes, Reflector
from authplane.sources.kubernetes.reflector_steps import Discover, FetchPage, OpenWatch, Pause

Take: TypeAlias = Callable[[Reflector, Changes], None]
"""Takes changes of objects; none if only the standing of the reflector may have changed."""
_PATIENCE: Final = 30.0


async def follow_kind(reflector: Reflector, client: ApiClient, take: Take, *, patience: float = _PATIENCE) -> None:
    """Follow a kind until cancelled; a streaming list that is silent for so many seconds is given up."""
    clock = asyncio.get_running_loop().time
    while True:
        step = reflector.step(clock(), _draw())
        match step:
            case Pause(until):
                await asyncio.sleep(max(0.0, until - clock()))
            case Discover() | FetchPage():
                take(reflector, await _fetch(reflector, client, step))
            case OpenWatch():
                await _watch(reflector, client, step, take, patience)
            case _:
                assert_never(step)


async def _fetch(reflector: Reflector, client: ApiClient, step: Discover | FetchPage) -> Changes:
    clock = asyncio.get_running_loop().time
    try:
        response = await client.request("GET", step.path, query=step.query if isinstance(step, FetchPage) else {})
    except ApiUnreachableError as error:
        return reflector.failed(str(error), clock(), _draw(), too_large=isinstance(error, ApiTooLargeError))
    if isinstance(step, Discover):
        return reflector.discovered(response.status, response.body, clock(), _draw())
    if response.status == HTTPStatus.OK:
        return reflector.page(response.body, clock(), _draw())
    return _refused(reflector, response)


async def _watch(reflector: Reflector, client: ApiClient, step: OpenWatch, take: Take, patience: float) -> None:
    clock = asyncio.get_running_loop().time
    try:
        async with client.lines(step.path, query=step.query, silence=step.silence) as lines:
            reflector.opened(clock())
            take(reflector, ())
            while True:
                async with asyncio.timeout(patience if reflector.listing else None):
                    line = await anext(lines, None)
                if line is None:
                    break
                take(reflector, reflector.line(line, clock(), _draw()))
                if not reflector.watching:
                    return
        take(reflector, reflector.ended(clock(), _draw()))
    except TimeoutError:
        take(reflector, reflector.stalled())
    except ApiStatusError as error:
        take(reflector, _refused(reflector, error.response))
    except ApiUnreachableError as error:
        take(reflector, reflector.failed(str(error), clock(), _draw()))


def _refused(reflector: Reflector, response: ApiResponse) -> Changes:
    later = response.headers.get("retry-after", "")
    wait = float(later) if later.isdecimal() and len(later) < 4 else 0.0
    return reflector.refused(response.status, response.body, asyncio.get_running_loop().time(), _draw(), wait=wait)


def _draw() -> float:
    return random.random()  # noqa: S311 (only spreads requests)
