"""Where each rule is enforced: by Envoy or a gRPC server alone if the answer is the same, else by the policy server.

Rules before a target come in; a plan with reasons goes out.
"""
