"""External services that policies ask, written as YAML."""

SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: authz}
spec: {ports: [{port: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {name: authz2}
spec: {ports: [{port: 9000}]}
"""


def external(name: str = "authz", more: str = "") -> str:
    return f"{{protocol: GRPC, backendRef: {{name: {name}, port: 9000}}{more}}}"


def asks(name: str = "authz") -> str:
    return f"{{type: ExternalAuth, externalAuth: {external(name)}}}"
