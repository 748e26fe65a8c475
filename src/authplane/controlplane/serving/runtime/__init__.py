"""Runs the control plane: the ADS server and its streams, issuers' keys, the status socket.

Changes of a folder and requests of proxies come in; xDS responses and status go out.
"""
