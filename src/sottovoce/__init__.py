"""Sottovoce: optimisation under differential privacy, where the optimiser only hears a whisper of the data."""
