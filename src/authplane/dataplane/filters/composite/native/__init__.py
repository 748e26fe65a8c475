"""Tree inputs that only our servers know: whether policies can be decided natively for a call, and its workload.

Configuration messages come in; inputs for matcher trees go out.
"""
