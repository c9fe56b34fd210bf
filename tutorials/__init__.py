"""The tutorials: scripts, the notebooks that are made of them, and their checks."""
