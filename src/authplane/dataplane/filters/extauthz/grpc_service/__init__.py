"""The service that a filter calls: where it is, and the credentials for it.

`GrpcService` messages come in; values go out, as gRFC A102 reads them.
"""
