"""The catalogue: the shipped experiments, each a question, and what the doctor says about this host."""
