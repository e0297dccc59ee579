"""Runs: the rows that say what is to be run and how it stands, their workers, their live stream and their pages.

The row is the truth of a run's state; the run folder is the truth of what happened in it (architecture §6, §8).
"""
