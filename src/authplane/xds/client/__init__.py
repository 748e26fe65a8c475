"""The client's side: what to ask of which server, and what watchers may rely on.

Responses, failures and time come in; requests and events for watchers go out.
"""
