"""Places each rule: native (Envoy or a gRPC server decides it, with the same answer) or call-out.

The policies of a target come in; a plan goes out, with the reason for each call-out.
"""
