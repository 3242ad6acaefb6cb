"""What can be known of a graph before anything runs: index spaces, traffic, costs, hazards, numerics."""
