"""The request of a check."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from authplane.core.values import dataclass

Headers: TypeAlias = dict[str, str] | Iterable[tuple[str, str]]
"""Some headers: by name in lower case, each once and none with an odd name; or all of them, as they came."""

AUTH_SPELLINGS: Final = ("auth-", "auth_")
"""The prefix of headers that only an authorization service may set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One end of the connection the request came over."""

    principal: str = ""
    """The identity its certificate proved; empty without mutual TLS."""
    address: str = ""
    """An IP address or the path of a unix socket."""
    port: int = 0
    certificate: str = ""
    """The certificate it showed, PEM and percent-encoded as Envoy sends it; empty without mutual TLS."""


class Reader(Protocol):
    """Reads attributes of requests from check messages, when they are used.

    It has no state of a single request, so that one reader serves all of them.
    """

    @property
    def plain(self) -> bool:
        """Whether no header begins with one of `AUTH_SPELLINGS`, and none has an odd name."""

    def read(self, message: Any, attribute: str) -> object:
        """Return an attribute of the request."""

    def values(self, message: Any, name: str) -> tuple[str, ...]:
        """Return every value of a header; ``name`` is in lower case."""

    def headers_for(self, message: Any, names: tuple[str, ...]) -> Headers:
        """Return the headers of these names; all, pair by pair, where one may be there twice or has an odd name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request as the proxy saw it. Only the peers and the context are trusted.

    Most backends read little of it. So a request that comes from a message keeps the message and reads each field at
    first use; callers see no difference.
    """

    method: str
    scheme: str = ""
    host: str = ""
    """Empty in checks of a gRPC server, which sends no host: a rule about hosts must not match then."""
    path: str
    """Without the query."""
    query: str = ""
    """Without the question mark."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case; every value of a name, in the order they came. Bytes that are not UTF-8 are kept as
    surrogate escapes, so that no two different values become equal."""
    context: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the route's configuration says about the request."""
    id: str = ""
    source: Peer = Peer()
    destination: Peer = Peer()
    body: bytes = b""
    """As much of the request's body as the proxy sends; usually none."""
    time: datetime | None = None
    """When the proxy received the request, if it says so."""

    auth_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of those headers that begin with one of `AUTH_SPELLINGS`."""
    odd_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The names of those headers that have an underscore: an origin may take it for a hyphen."""
    _reader: Reader | None = field(default=None, init=False, repr=False, compare=False)
    _message: Any = field(default=None, init=False, repr=False, compare=False)
    _taken: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was taken from the message by now."""

    def __post_init__(self) -> None:
        _name(self)

    def values(self, name: str) -> tuple[str, ...]:
        """Return every value of a header; ``name`` is in lower case."""
        if self._reader is not None:
            return self._reader.values(self._message, name)
        return tuple(value for each, value in self.headers if each == name)

    @property
    def source_address(self) -> str:
        """The address of the source; to read the whole peer for it takes six times as long."""
        reader, message, taken = _source_of(self)
        if reader is None or "source" in taken:
            return self.source.address
        return str(reader.read(message, "source_address"))

    def headers_for(self, names: tuple[str, ...]) -> Headers:
        """Return the headers for a caller that reads only these names, repeated names and odd names."""
        return self.headers if self._reader is None else self._reader.headers_for(self._message, names)


def partly_read(  # noqa: PLR0913, PLR0917 (every check makes one)
    reader: Reader, message: object, method: str, host: str, path: str, context: Mapping[str, str]
) -> Request:
    """Build a request of the known attributes and a message with the others."""
    # Past the constructor, which would fill in every attribute.
    request = _new(Request)
    _put_reader(request, reader)
    _put_message(request, message)
    _put_taken(request, {})
    _put_method(request, method)
    _put_host(request, host)
    _put_path(request, path)
    _put_context(request, context)
    if reader.plain:
        _put_auth_names(request, ())
        _put_odd_names(request, ())
    else:
        _name(request)
    return request


def _name(request: Request) -> None:
    """Set the names of the headers that need a closer look."""
    names = [name for name, _ in request.headers]
    _put_auth_names(request, tuple([name for name in names if name.startswith(AUTH_SPELLINGS)]))
    _put_odd_names(request, tuple([name for name in names if "_" in name]))


_new: Final = object.__new__
_source_of: Final = attrgetter("_reader", "_message", "_taken")
_put_reader, _put_message, _put_taken, _put_method, _put_host, _put_path, _put_context = (
    vars(Request)[name].__set__ for name in ("_reader", "_message", "_taken", "method", "host", "path", "context")
)
_put_auth_names, _put_odd_names = (vars(Request)[name].__set__ for name in ("auth_names", "odd_names"))


class _Later:
    """An attribute of requests that is read from their message at its first use, and kept.

    Measured on a busy machine, with 13 headers: a request whose message is read on demand is there after 16 µs, one
    of which every attribute was read after 64 µs. Most backends look at few of them.
    """

    def __init__(self, name: str, slot: Any) -> None:
        self._name = name
        self._find: Callable[[Request], object] = slot.__get__
        self._put: Callable[[Request, object], None] = slot.__set__

    def __get__(self, request: Request | None, _owner: type[Request]) -> object:
        if request is None:
            return self
        reader, message, taken = _source_of(request)
        if reader is None:
            return self._find(request)
        # Not kept in the slot: to find out that it is empty costs more than to read the message.
        name = self._name
        if name not in taken:
            taken[name] = reader.read(message, name)
        value: object = taken[name]
        return value

    def __set__(self, request: Request, value: object) -> None:
        self._put(request, value)


# Not by ``__getattr__``, which would make every other attribute slow to find.
for _attribute in ("scheme", "query", "headers", "id", "source", "destination", "body", "time"):
    setattr(Request, _attribute, _Later(_attribute, vars(Request)[_attribute]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """The message does not describe a request that could be judged."""

    reason: str
