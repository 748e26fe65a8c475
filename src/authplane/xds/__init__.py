"""The xDS protocol as state machines that do no I/O."""
