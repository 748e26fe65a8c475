"""Fast readers of headers that are read often, with the results of `read_header`."""

from base64 import b64encode
from collections.abc import Callable
from typing import TypeAlias

from authplane.matching.tree_inputs import KNOWN, HasHeaders

HeaderReader: TypeAlias = Callable[[HasHeaders], str | None]


def header_reader(name: str) -> HeaderReader:
    """Return what reads the header of a name in lower case."""
    known = KNOWN.get(name)
    if known is not None:
        return known

    def read(subject: HasHeaders) -> str | None:
        found = None
        for key, value in subject.metadata:
            if key == name:
                text = value if isinstance(value, str) else b64encode(value).rstrip(b"=").decode()
                found = text if found is None else f"{found},{text}"
        return found

    return read
