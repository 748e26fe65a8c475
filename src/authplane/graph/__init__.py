"""Resources to a validated routing graph, and the status of each resource from the same pass."""
