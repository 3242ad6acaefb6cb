"""`fusebound.compile`: guards, specializations, the measured gate, the short way of later calls."""
