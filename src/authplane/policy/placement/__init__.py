"""Where rules are enforced: by Envoy alone wherever it gives the same answer, else by the policy server, and why."""
