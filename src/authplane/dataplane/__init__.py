"""What `authplane.grpc` is made of: configuration, routing, filters, and servers and channels that run them.

xDS resources come in; calls are judged before their handler or before they leave.
"""
