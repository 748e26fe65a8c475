"""Builds checks for external authorization services, and reads their answers.

A request comes in and a gRPC or HTTP check goes out; the answer comes in and a grant, a denial or no answer goes out.
"""
