"""Experiments: read a spec strictly, plan it, assemble its machines, launch it, judge it. The composition root."""
