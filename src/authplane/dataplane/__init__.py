"""The filters, servers and channels that `authplane.grpc` is made of.

xDS resources or filters named in code come in, then calls; each call proceeds, perhaps changed, or ends with a
status.
"""
