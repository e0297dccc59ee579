"""When things happen: the manual, the simulated and the wall clock drive the same machines."""
