"""The client's side of xDS as a state machine: what to ask of which server, and what watchers may rely on."""
