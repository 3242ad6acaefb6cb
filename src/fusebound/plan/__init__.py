"""The planner: candidates, the greedy search, predictions; plans as data that is saved, compared, explained."""
