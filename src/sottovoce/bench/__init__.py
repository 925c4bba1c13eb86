"""The published tables, run again on real data: every method, several budgets, several seeds, and controls."""
