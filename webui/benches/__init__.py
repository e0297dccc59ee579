"""Benches: the machines that carry runs out, what they can do, who has them, and which run goes where."""
