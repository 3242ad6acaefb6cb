"""Checking a built program's numbers against eager and against the user's program in float64."""
