"""Converts calls and answers of authorization services to messages of `envoy.service.auth.v3` and back.

A call comes in and a CheckRequest goes out; a CheckResponse comes in and a decision goes out.
"""
