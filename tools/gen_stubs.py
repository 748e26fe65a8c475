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
    "envoy/config/core/v3/extension.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/rbac/v3/rbac.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/access_loggers/filters/cel/v3/cel.proto",
    "envoy/extensions/access_loggers/stream/v3/stream.proto",
    "envoy/extensions/clusters/aggregate/v3/cluster.proto",
    "envoy/extensions/common/matching/v3/extension_matcher.proto",
    "envoy/extensions/filters/common/matcher/action/v3/skip_action.proto",
    "envoy/extensions/filters/http/composite/v3/composite.proto",
    "envoy/extensions/filters/http/ext_authz/v3/ext_authz.proto",
    "envoy/extensions/filters/http/fault/v3/fault.proto",
    "envoy/extensions/filters/http/gcp_authn/v3/gcp_authn.proto",
    "envoy/extensions/filters/http/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/filters/http/jwt_authn/v3/config.proto",
    "envoy/extensions/filters/http/lua/v3/lua.proto",
    "envoy/extensions/filters/http/rbac/v3/rbac.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/listener/tls_inspector/v3/tls_inspector.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/formatter/cel/v3/cel.proto",
    "envoy/extensions/grpc_service/call_credentials/access_token/v3/access_token_credentials.proto",
    "envoy/extensions/grpc_service/channel_credentials/insecure/v3/insecure_credentials.proto",
    "envoy/extensions/grpc_service/channel_credentials/tls/v3/tls_credentials.proto",
    "envoy/extensions/grpc_service/channel_credentials/xds/v3/xds_credentials.proto",
    "envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3/client_side_weighted_round_robin.proto",
    "envoy/extensions/load_balancing_policies/least_request/v3/least_request.proto",
    "envoy/extensions/load_balancing_policies/pick_first/v3/pick_first.proto",
    "envoy/extensions/load_balancing_policies/ring_hash/v3/ring_hash.proto",
    "envoy/extensions/load_balancing_policies/round_robin/v3/round_robin.proto",
    "envoy/extensions/load_balancing_policies/wrr_locality/v3/wrr_locality.proto",
    "envoy/extensions/network/dns_resolver/cares/v3/cares_dns_resolver.proto",
    "envoy/extensions/rbac/principals/mtls_authenticated/v3/mtls_authenticated.proto",
    "envoy/extensions/resource_monitors/downstream_connections/v3/downstream_connections.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/service/auth/v2/external_auth.proto",
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/status/v3/csds.proto",
    "envoy/type/matcher/v3/http_inputs.proto",
    "udpa/type/v1/typed_struct.proto",
    "xds/type/matcher/v3/cel.proto",
    "xds/type/matcher/v3/http_inputs.proto",
    "xds/type/matcher/v3/matcher.proto",
    "xds/type/v3/typed_struct.proto",
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
