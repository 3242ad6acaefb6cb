"""One versioned record of a run, and its faces as text, JSON and CSV."""
