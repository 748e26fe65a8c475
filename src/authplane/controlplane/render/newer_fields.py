"""Fields of newer Envoys that our copy of the messages does not have yet, for showing messages as JSON."""

from functools import cache
from typing import Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

SHADOW_MODE: Final = 32
"""The number of ``ExtAuthz.shadow_mode``: Envoy 1.38 and later."""

REJECT_DUPLICATE_KEYS: Final = 8
"""The number of ``Mcp.reject_duplicate_keys``: Envoy 1.39 and later."""

EXTRACTION_RULES: Final = 3
"""The number of ``Mcp.ParserConfig.MethodConfig.extraction_rules`` since Envoy 1.39; it was 2, which is a group now."""

_EXT_AUTHZ: Final = "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto"
_MCP: Final = "envoy/extensions/filters/http/mcp/v3/mcp.proto"


@cache
def newer_messages() -> descriptor_pool.DescriptorPool:
    """Return all messages that we know, with the newer fields."""
    return descriptor_pool.DescriptorPool(_Known())


class _Known:
    """Finds files for a pool: those that we have, with the newer fields added."""

    def FindFileByName(self, name: str) -> FileDescriptorProto:  # noqa: N802 (the pool calls it so)
        """Return a file; raises KeyError if there is none."""
        return _newer(descriptor_pool.Default().FindFileByName(name))

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptorProto:  # noqa: N802 (as above)
        """Return the file of a message; raises KeyError if there is none."""
        return _newer(descriptor_pool.Default().FindFileContainingSymbol(symbol))


def _newer(file: FileDescriptor) -> FileDescriptorProto:
    written = FileDescriptorProto()
    file.CopyToProto(written)
    if file.name == _EXT_AUTHZ:
        _add(written, "ExtAuthz", "shadow_mode", SHADOW_MODE)
    if file.name == _MCP:
        _add(written, "Mcp", "reject_duplicate_keys", REJECT_DUPLICATE_KEYS, ".google.protobuf.BoolValue")
        _renumber(written)
    return written


def _renumber(file: FileDescriptorProto) -> None:
    """Move the extraction rules of methods to where newer Envoys have them."""
    [parser] = [each for each in file.message_type if each.name == "ParserConfig"]
    [method] = [each for each in parser.nested_type if each.name == "MethodConfig"]
    for field in method.field:
        if field.name == "extraction_rules":
            field.number = EXTRACTION_RULES


def _add(file: FileDescriptorProto, message: str, name: str, number: int, kind: str = "") -> None:
    """Add a field that is true or false, or of the type that is named."""
    [found] = [each for each in file.message_type if each.name == message]
    if any(field.number == number for field in found.field):
        return
    words = name.split("_")
    types = FieldDescriptorProto.Type
    added = found.field.add(
        name=name,
        json_name=words[0] + "".join(map(str.capitalize, words[1:])),
        number=number,
        type=types.TYPE_MESSAGE if kind else types.TYPE_BOOL,
        label=FieldDescriptorProto.Label.LABEL_OPTIONAL,
    )
    if kind:
        added.type_name = kind
