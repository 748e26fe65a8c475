"""Who answers checks: grpcio, Python inside Envoy (pyvoy), plain HTTP.

Connections come in; bytes of answers go out.
"""
