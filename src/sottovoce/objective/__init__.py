"""How losses are evaluated: the only code that runs the user's model."""
