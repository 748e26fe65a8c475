"""xDS messages read into frozen values, with every problem."""
