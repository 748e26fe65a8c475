"""What only our servers tell of a call: whether it may be judged without asking, and which workload makes it.

Messages come in; inputs of trees go out.
"""
