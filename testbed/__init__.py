"""What the emulated systems are: pure machines, their wires, clocks, metrics and experiments.

Nothing here knows Django, Mininet, Docker or root (docs/architecture: contracts in pyproject.toml).
"""
