"""Timing in interleaved rounds, this machine's figures, and comparisons with eager."""
