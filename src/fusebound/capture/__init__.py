"""From the user's function, or a file, to the graph IR."""
