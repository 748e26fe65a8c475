"""Fields of newer Envoys that our copy of the messages does not have yet, for showing messages as JSON."""

from functools import cache
from typing import Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

SHADOW_MODE: Final = 32
"""The number of ``ExtAuthz.shadow_mode``: Envoy 1.38 and later."""

_EXT_AUTHZ: Final = "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto"


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
    return written


def _add(file: FileDescriptorProto, message: str, name: str, number: int) -> None:
    """Add a field that is true or false."""
    [found] = [each for each in file.message_type if each.name == message]
    if any(field.number == number for field in found.field):
        return
    words = name.split("_")
    found.field.add(
        name=name,
        json_name=words[0] + "".join(map(str.capitalize, words[1:])),
        number=number,
        type=FieldDescriptorProto.Type.TYPE_BOOL,
        label=FieldDescriptorProto.Label.LABEL_OPTIONAL,
    )
