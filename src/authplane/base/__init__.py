"""What every layer speaks of: problems, names, timeouts, secrets. Imports nothing of ours."""
