"""Calls that fail before they are sent."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import grpc
import grpc.aio

from authplane.dataplane.filters.calls import Code, Stop

STATUSES: Final = {Code(each.value[0]): each for each in grpc.StatusCode}


class FailedCall(grpc.RpcError, grpc.Call, grpc.Future):  # type: ignore[type-arg]
    """A call of a synchronous channel that has ended already: an error to raise, a future, and an iterator alike."""

    def __init__(self, stop: Stop) -> None:
        super().__init__()
        self._code = STATUSES[stop.code]
        self._details = stop.message
        self._trailers = tuple(stop.trailers)

    def __str__(self) -> str:
        return f"{self._code.name}: {self._details}"

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        return self._code

    def details(self) -> str:
        """Return the words of the status."""
        return self._details

    def initial_metadata(self) -> tuple[()]:
        """Return nothing: no server received the call."""
        return ()

    def trailing_metadata(self) -> tuple[Any, ...]:
        """Return the trailing metadata of the failure."""
        return self._trailers

    def is_active(self) -> bool:
        """Tell that the call has ended."""
        return False

    def time_remaining(self) -> float:
        """Return no time."""
        return 0.0

    def cancel(self) -> bool:
        """Tell that there is nothing to cancel."""
        return False

    def cancelled(self) -> bool:
        """Tell that the call was not cancelled."""
        return False

    def running(self) -> bool:
        """Tell that the call has ended."""
        return False

    def done(self) -> bool:
        """Tell that the call has ended."""
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:  # noqa: ARG002 (False says that it is not called)
        """Tell that the call has ended."""
        return False

    def add_done_callback(self, fn: "Callable[[grpc.Future[Any]], None]") -> None:
        """Call back at once."""
        fn(self)

    def result(self, timeout: float | None = None) -> NoReturn:  # noqa: ARG002 (nothing is waited for)
        """Raise the failure."""
        raise self

    def exception(self, timeout: float | None = None) -> Self:  # noqa: ARG002 (nothing is waited for)
        """Return the failure."""
        return self

    def traceback(self, timeout: float | None = None) -> TracebackType | None:  # noqa: ARG002 (nothing is waited for)
        """Return where the failure was raised, if it was."""
        return self.__traceback__

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> NoReturn:
        raise self


def aio_failure(stop: Stop) -> grpc.aio.AioRpcError:
    """Return what an interceptor of an asynchronous channel raises to fail a call."""
    trailers = grpc.aio.Metadata(*stop.trailers)
    return grpc.aio.AioRpcError(STATUSES[stop.code], grpc.aio.Metadata(), trailers, details=stop.message)
