"""Which names users can have, in lists of users and in credentials alike."""

import re
from typing import Final

LONGEST_USER: Final = 255
"""In bytes of UTF-8."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def fit_user(user: str) -> bool:
    """Tell whether a list may have this user: not empty, not too long, no colon, no control character."""
    return (
        0 < len(user) <= LONGEST_USER
        and ":" not in user
        and not _CONTROL.search(user)
        and (user.isascii() or len(user.encode(errors="replace")) <= LONGEST_USER)
    )
