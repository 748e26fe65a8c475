"""Server reflection: tells gRPC tools what the authorization service serves, the same on every engine.

The versions ``v1`` and ``v1alpha`` have the same messages on the wire. A reply contains one file; tools request its
imports by name, so that no short request has a long reply.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cache
from typing import Final

import grpc
import grpc.aio
from envoy.service.auth.v2 import external_auth_pb2 as v2
from envoy.service.auth.v3 import external_auth_pb2 as v3
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection_pb2 as pb

from authplane.authserver.fronts.runtime.asgi_bodies import Message, Receive
from authplane.authserver.fronts.runtime.asgi_front import Refusal, Scope, Send
from authplane.runtime.servers.service_names import HEALTH, REFLECTIONS, SERVICES

METHOD: Final = "ServerReflectionInfo"
PATHS: Final = tuple(f"/{version}/{METHOD}".encode("ascii") for version in REFLECTIONS)
_SERVED: Final = sorted((*SERVICES, HEALTH, *REFLECTIONS))

_INVALID_ARGUMENT: Final = 3
_NOT_FOUND: Final = 5
_RESOURCE_EXHAUSTED: Final = 8
_UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

_PREFIX: Final = 5
_LONGEST_QUESTION: Final = 4096
_MOST_QUESTIONS: Final = 1000
"""In one call; all files together are fewer than a hundred."""
_MOST_CALLS: Final = 16
"""At a time in a process: tools ask seldom, and checks go first."""
_TOO_LONG: Final = Refusal(_RESOURCE_EXHAUSTED, f"the message is larger than {_LONGEST_QUESTION} bytes")
_COMPRESSED: Final = Refusal(_UNIMPLEMENTED, "compression is not supported")
_CUT: Final = Refusal(_INTERNAL, "the body ends before its message does")
_NOT_A_QUESTION: Final = Refusal(_INVALID_ARGUMENT, "not a ServerReflectionRequest")
_TOO_MANY_QUESTIONS: Final = Refusal(_RESOURCE_EXHAUSTED, "too many requests in one call")
_TOO_MANY_CALLS: Final = Refusal(_RESOURCE_EXHAUSTED, "too many calls at the same time")
_BEGIN: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/grpc")],
    "trailers": True,
}


class Reflection:
    """Answers calls, a few at a time; one for all versions of the service."""

    def __init__(self) -> None:
        self._calls = 0

    async def converse(self, questions: AsyncIterator[bytes | Refusal]) -> AsyncGenerator[bytes | Refusal]:
        """Answer the requests one by one; a refusal is the last answer."""
        if self._calls >= _MOST_CALLS:
            yield _TOO_MANY_CALLS
            return
        self._calls += 1
        try:
            asked = 0
            async for question in questions:
                asked += 1
                known = _TOO_MANY_QUESTIONS if asked > _MOST_QUESTIONS else question
                reply = known if isinstance(known, Refusal) else reflect(known)
                yield reply
                if isinstance(reply, Refusal):
                    return
        finally:
            self._calls -= 1

    def handler(self, version: str) -> grpc.GenericRpcHandler:
        """Serve one of the versions on a gRPC server."""

        async def info(
            questions: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncGenerator[bytes]:
            async with aclosing(self.converse(questions)) as replies:
                async for reply in replies:
                    if isinstance(reply, Refusal):
                        await context.abort(_CODES[reply.code], reply.message)
                    else:
                        yield reply

        return grpc.method_handlers_generic_handler(version, {METHOD: grpc.stream_stream_rpc_method_handler(info)})

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call as an ASGI application."""
        await send(_BEGIN)
        last = Refusal(0, "")
        async with aclosing(self.converse(_questions(receive))) as replies:
            async for reply in replies:
                if isinstance(reply, Refusal):
                    last = reply
                else:
                    framed = b"\0" + len(reply).to_bytes(4, "big") + reply
                    await send({"type": "http.response.body", "body": framed, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        status = [(b"grpc-status", b"%d" % last.code), (b"grpc-message", last.message.encode("ascii"))]
        await send({"type": "http.response.trailers", "headers": status, "more_trailers": False})


async def _questions(receive: Receive) -> AsyncGenerator[bytes | Refusal]:
    """Split what a client sends into messages, until the client leaves."""
    kept, more = bytearray(), True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            return
        kept += event.get("body", b"")
        more = event.get("more_body", False)
        while len(kept) >= _PREFIX:
            size = int.from_bytes(kept[1:_PREFIX], "big")
            if kept[0]:
                yield _COMPRESSED
            elif size > _LONGEST_QUESTION:
                yield _TOO_LONG
            elif len(kept) < size + _PREFIX:
                break
            yield bytes(kept[_PREFIX : size + _PREFIX])
            del kept[: size + _PREFIX]
    if kept:
        yield _CUT


def reflect(body: bytes) -> bytes | Refusal:
    """Answer one serialized ServerReflectionRequest."""
    if len(body) > _LONGEST_QUESTION:
        return _TOO_LONG
    try:
        request = pb.ServerReflectionRequest.FromString(body)
    except DecodeError:
        return _NOT_A_QUESTION
    try:
        reply = _reply(request)
    except KeyError:
        reply = _error(_NOT_FOUND, "not served here")
    reply.valid_host = request.host
    reply.original_request.CopyFrom(request)
    return reply.SerializeToString()


def _reply(request: pb.ServerReflectionRequest) -> pb.ServerReflectionResponse:
    """Answer a request; raises KeyError for an unknown name."""
    pool = served_files()
    match request.WhichOneof("message_request"):
        case "list_services":
            listed = pb.ListServiceResponse(service=[pb.ServiceResponse(name=name) for name in _SERVED])
            return pb.ServerReflectionResponse(list_services_response=listed)
        case "file_by_filename":
            return _file(pool.FindFileByName(request.file_by_filename))
        case "file_containing_symbol":
            return _file(pool.FindFileContainingSymbol(request.file_containing_symbol))
        case "file_containing_extension":
            asked = request.file_containing_extension
            extended = pool.FindMessageTypeByName(asked.containing_type)
            found = pool.FindExtensionByNumber(extended, asked.extension_number)
            return _file(pool.FindFileContainingSymbol(found.full_name))
        case "all_extension_numbers_of_type":
            extended = pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
            numbers = pb.ExtensionNumberResponse(
                base_type_name=extended.full_name,
                extension_number=sorted(found.number for found in pool.FindAllExtensions(extended)),
            )
            return pb.ServerReflectionResponse(all_extension_numbers_response=numbers)
        case _:
            return _error(_INVALID_ARGUMENT, "the request is empty")


def _file(found: FileDescriptor) -> pb.ServerReflectionResponse:
    files = pb.FileDescriptorResponse(file_descriptor_proto=[found.serialized_pb])
    return pb.ServerReflectionResponse(file_descriptor_response=files)


def _error(code: int, message: str) -> pb.ServerReflectionResponse:
    return pb.ServerReflectionResponse(error_response=pb.ErrorResponse(error_code=code, error_message=message))


@cache
def served_files() -> DescriptorPool:
    """Return the files that describe what is served, and no others that the process happens to know."""
    pool = DescriptorPool()
    known: set[str] = set()
    for root in (v2, v3, pb):
        _add(Default().FindFileByName(root.DESCRIPTOR.name), pool, known)
    for made in (_reflection_v1(), _health()):
        pool.AddSerializedFile(made.SerializeToString())
    return pool


def _add(file: FileDescriptor, pool: DescriptorPool, known: set[str]) -> None:
    """Add a file after those that it imports."""
    if file.name in known:
        return
    known.add(file.name)
    for imported in file.dependencies:
        _add(imported, pool, known)
    pool.AddSerializedFile(file.serialized_pb)


def _reflection_v1() -> FileDescriptorProto:
    """Describe v1, which is v1alpha under another name."""
    older, newer = (version.rpartition(".")[0] for version in reversed(REFLECTIONS))
    made = FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    made.name, made.package = f"{newer.replace('.', '/')}/reflection.proto", newer
    for message in made.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(older, newer)
    for method in made.service[0].method:
        method.input_type = method.input_type.replace(older, newer)
        method.output_type = method.output_type.replace(older, newer)
    return made


def _health() -> FileDescriptorProto:
    """Describe the part of the health service that is served: ``Check``."""
    package = HEALTH.rpartition(".")[0]
    asked, told = f".{package}.HealthCheckRequest", f".{package}.HealthCheckResponse"
    states = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
    values = [{"name": name, "number": number} for number, name in enumerate(states)]
    one = {"number": 1, "label": "LABEL_OPTIONAL"}
    described = {
        "name": "grpc/health/v1/health.proto",
        "package": package,
        "syntax": "proto3",
        "messageType": [
            {"name": "HealthCheckRequest", "field": [{"name": "service", "type": "TYPE_STRING", **one}]},
            {
                "name": "HealthCheckResponse",
                "field": [{"name": "status", "type": "TYPE_ENUM", "typeName": f"{told}.ServingStatus", **one}],
                "enumType": [{"name": "ServingStatus", "value": values}],
            },
        ],
        "service": [{"name": "Health", "method": [{"name": "Check", "inputType": asked, "outputType": told}]}],
    }
    return ParseDict(described, FileDescriptorProto())
