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
        [message] = [each for each in written.message_type if each.name == "ExtAuthz"]
        if all(field.number != SHADOW_MODE for field in message.field):
            message.field.add(
                name="shadow_mode",
                json_name="shadowMode",
                number=SHADOW_MODE,
                type=FieldDescriptorProto.Type.TYPE_BOOL,
                label=FieldDescriptorProto.Label.LABEL_OPTIONAL,
            )
    return written
