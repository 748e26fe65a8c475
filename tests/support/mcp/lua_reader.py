"""The reader of MCP messages, for tests: in the LuaJIT that Envoy has, or as the filter of an Envoy.

In LuaJIT alone, Envoy's parts of a request are replaced by small ones of ours.
"""

from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

from lupa import luajit21

SOURCE: Final = files("authplane.policy.mcp").joinpath("reader.lua").read_bytes()

_ENVOY: Final = b"""
local pairs_of_tables = pairs
-- Envoy's headers are iterated one by one, several of the same name included.
function pairs(each)
  if not each.listed then return pairs_of_tables(each) end
  local number = -1
  return function()
    number = number + 2
    return each.listed[number], each.listed[number + 1]
  end
end

function request(listed, content, arguments, tokens)
  local noted
  local body = { length = function() return #content end,
                 getBytes = function(_, from, size) return string.sub(content, from + 1, from + size) end }
  local metadata = { set = function(_, place, key, value) noted = { place, key, value } end }
  local info = { dynamicMetadata = function() return metadata end }
  local kept = { arguments = arguments, tokens = tokens }
  local context = { get = function(_, key) return kept[key] end }
  local handle = { filterContext = function() return context end, headers = function() return { listed = listed } end,
                   streamInfo = function() return info end,
                   body = function() return #content > 0 and body or nil end }
  envoy_on_request(handle)
  return noted
end
"""


def lua_filter(most_bytes: int = 65_536) -> dict[str, Any]:
    """Return the filter that reads messages of up to so many bytes."""
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        "default_source_code": {"inline_string": f"MOST_BYTES = {most_bytes}\n{SOURCE.decode()}"},
    }


class LuaReader:
    """Reads requests as Envoy does; with ``tokens``, rules of the target read tokens."""

    def __init__(self, most_bytes: int = 65_536, source: bytes = SOURCE, *, tokens: bool = False) -> None:
        self._tokens = tokens or None
        self._lua: Any = luajit21.LuaRuntime(encoding=None)  # bytes, as in Envoy
        self._lua.execute(b"MOST_BYTES = %d\n" % most_bytes + _ENVOY + source)
        self._request = self._lua.globals()[b"request"]

    def read(
        self, method: str, headers: Iterable[tuple[str, str]], path: str, body: bytes, arguments: Iterable[str] = ()
    ) -> dict[str, Any] | None:
        """Return what the reader writes of a plain message, these arguments included; None if it writes nothing."""
        listed = [(":method", method), (":path", path), ("content-length", str(len(body))), *headers]
        texts = [text.encode("utf-8", "surrogateescape") for each in listed for text in each]
        names = "\n".join(arguments).encode() or None
        noted = self._request(self._lua.table_from(texts), body, names, self._tokens)
        if noted is None:
            return None
        place, key, found = noted[1], noted[2], noted[3]
        assert (place, key) == (b"authplane.mcp", b"message")
        decoded: dict[str, Any] = _decoded(found)
        return decoded


def _decoded(found: Any) -> Any:
    if isinstance(found, bytes):
        return found.decode()
    if isinstance(found, bool | int | float):
        return found
    return {name.decode(): _decoded(value) for name, value in found.items()}
