"""What all servers share: addresses, TLS files, gRPC and HTTP servers, health.

Settings come in; listening servers go out.
"""
