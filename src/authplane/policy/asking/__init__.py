"""How external authorization services are asked about a request, and what their words mean."""
