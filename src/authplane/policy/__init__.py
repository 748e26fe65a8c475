"""Authorization decisions: a request in, Allow, Deny or Unavailable out."""
