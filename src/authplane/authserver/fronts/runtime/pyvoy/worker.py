"""The worker of the pyvoy front: it runs inside Envoy, configured by the environment.

The parent process passes the plan of the server and the name of the front to serve. A factory, named by its import
path, builds the parts from the plan; it may keep tasks of its own while it serves.
"""

import gc
import importlib
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeAlias

import structlog

from authplane.authserver.engine.backend import Backend
from authplane.authserver.engine.backend_choice import Choice
from authplane.authserver.fronts.runtime.answer_checks import Checks, Observing, Perform, no_room
from authplane.authserver.fronts.runtime.asgi_bodies import Receive
from authplane.authserver.fronts.runtime.asgi_front import Application, GrpcApplication, Scope, Send
from authplane.authserver.fronts.runtime.http_front import HttpApplication, HttpChecks
from authplane.authserver.fronts.runtime.reflection import PATHS, Reflection
from authplane.authserver.plan.plan_text import plan_text, read_plan
from authplane.authserver.plan.server_plan import FrontPlan, ServerPlan
from authplane.core.values import dataclass
from authplane.runtime.child_processes import place_of
from authplane.runtime.log import set_up_log
from authplane.runtime.servers.http_server import Respond, serve_http
from authplane.runtime.servers.listen import UnixAddress

PLAN: Final = "AUTHPLANE_PLAN"
"""The `ServerPlan`, as text."""
FRONT: Final = "AUTHPLANE_FRONT"
"""Which of its fronts this worker serves, by number."""
FACTORY: Final = "AUTHPLANE_FACTORY"
"""``module:name`` of a `Factory`."""
SOCKET: Final = "AUTHPLANE_SOCKET"
"""Where this worker answers its parent about itself; nowhere without it."""

_log: Final = structlog.stdlib.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a worker serves with."""

    backend: Backend | Choice
    observer: Observing
    perform: Perform = no_room
    ready: Callable[[], bool] = lambda: True
    """What the health service says."""
    pages: Respond | None = None
    """The pages about the process: health, readiness and metrics."""
    reopen: Callable[[], None] = lambda: None
    """Opens log files anew."""


Factory: TypeAlias = Callable[[ServerPlan], AbstractAsyncContextManager[Serving]]
"""Makes the parts of a plan; what they need runs until the context ends."""


def worker_environment(plan: ServerPlan, front: FrontPlan, factory: str) -> dict[str, str]:
    """Return the variables that tell a worker what to serve; other programs of this user can read them."""
    return {PLAN: plan_text(plan), FRONT: str(plan.fronts.index(front)), FACTORY: factory}


class Worker:
    """An application that makes its parts when it is started."""

    def __init__(self) -> None:
        self._application: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the worker."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._application is None:
            raise RuntimeError("a request arrived before the start")
        else:
            await self._application(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            plan = read_plan(os.environ[PLAN])
            set_up_log(plan.log_format)
            made = load_factory(os.environ[FACTORY])(plan)
            async with made as serving, _told(serving.pages, os.environ.get(SOCKET)):
                self._application = build_application(serving, plan.fronts[int(os.environ[FRONT])])
                # What is there by now stays: the collector need not look at it again while checks wait.
                gc.collect()
                gc.freeze()
                started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:  # noqa: BLE001 (the server expects the failure in its protocol)
            _log.error("worker failed", error=place_of(error), why=str(error))
            await send({"type": f"lifespan.{'shutdown' if started else 'startup'}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


def _told(pages: Respond | None, socket: str | None) -> AbstractAsyncContextManager[object]:
    """Answer the parent's requests about this worker."""
    return serve_http(UnixAddress(path=socket), pages) if pages and socket else nullcontext()


def build_application(serving: Serving, front: FrontPlan) -> Application:
    """Put an application together."""
    if front.form is not None:
        asked = HttpChecks(
            serving.backend, front.form, observer=serving.observer, perform=serving.perform, in_flight=front.in_flight
        )
        return HttpApplication(asked, largest_body=front.largest_message)
    checks = Checks(serving.backend, observer=serving.observer, perform=serving.perform, in_flight=front.in_flight)
    others = dict.fromkeys(PATHS, Reflection())
    return GrpcApplication(checks, largest_message=front.largest_message, serving=serving.ready, others=others)


def load_factory(path: str) -> Factory:
    """Import what ``module:name`` names."""
    module, _, name = path.partition(":")
    factory: Factory = getattr(importlib.import_module(module), name)
    return factory


app: Final = Worker()
"""The application that pyvoy serves."""
