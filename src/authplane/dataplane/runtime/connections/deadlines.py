"""How much time a call has left."""

from time import monotonic
from typing import Final


class Deadline:
    """The end of a call's time, counted from now; None is no limit."""

    __slots__ = ("until",)

    def __init__(self, timeout: float | None) -> None:
        self.until: Final = None if timeout is None else monotonic() + timeout

    def left(self) -> float | None:
        """Return the seconds that are left, 0 if the time is over, None without a limit."""
        return None if self.until is None else max(self.until - monotonic(), 0.0)
