"""What touches the world and more than one product needs: clocks, processes, servers, issuers' keys.

The products bring settings; they get things that run. Nothing here decides.
"""
