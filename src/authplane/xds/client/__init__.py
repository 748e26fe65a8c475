"""The client side: what to request from which server, and what watchers may rely on.

Responses, failures and the time come in; requests and events for watchers go out.
"""
