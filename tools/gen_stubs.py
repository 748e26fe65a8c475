"""Write type stubs for the protobuf messages we use, from the descriptors that xds-protos ships.

xds-protos has no stubs of its own. The roots below are the messages that the code names; everything they refer to
is generated too. `make lint` runs this; the result in `typings/` is not committed.
"""

import importlib
import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor import FileDescriptor

ROOTS = (
    "envoy/config/accesslog/v3/accesslog.proto",
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/resource_monitors/downstream_connections/v3/downstream_connections.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/service/auth/v2/external_auth.proto",
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/discovery/v3/discovery.proto",
)


def closure(roots: tuple[str, ...]) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Return the descriptors of the roots and of everything they import, imports first."""
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    def visit(file: FileDescriptor) -> None:
        if file.name in found:
            return
        for dependency in file.dependencies:
            visit(dependency)
        message = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(message)
        found[file.name] = message

    for root in roots:
        visit(importlib.import_module(root.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR)
    return found


def main() -> int:
    """Generate the stubs below the folder that is named."""
    target = Path(sys.argv[1])
    files = closure(ROOTS)
    request = plugin_pb2.CodeGeneratorRequest(
        file_to_generate=[name for name in files if not name.startswith("google/protobuf/")],
        proto_file=files.values(),
    )
    plugin = Path(sys.executable).parent / "protoc-gen-mypy"
    finished = subprocess.run([plugin], input=request.SerializeToString(), capture_output=True, check=False)
    if finished.returncode:
        print(finished.stderr.decode(), file=sys.stderr)
        return 1
    response = plugin_pb2.CodeGeneratorResponse.FromString(finished.stdout)
    for file in response.file:
        path = target / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content, encoding="utf-8")
    print(f"{len(response.file)} stubs in {target}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
