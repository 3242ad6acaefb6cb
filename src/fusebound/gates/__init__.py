"""The four gates: pure functions from a candidate and facts to a verdict with its evidence."""
