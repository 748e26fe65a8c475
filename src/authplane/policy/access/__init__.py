"""AccessPolicies: who may do what with a backend, from documents to decisions."""
