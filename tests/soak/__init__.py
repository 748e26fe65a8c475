"""The gateway as users run it, under mixed load, with faults: ``make soak ARGS=MINUTES``.

`world` has the programs, `requests` what clients send, `load` the clients, `faults` what goes wrong, `judge` the right
answer of every request, `report` the bars.
"""
