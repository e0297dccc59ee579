"""A plan made real: networks, containers and processes of a run. With runnerd the only privileged code.

This package knows plans (`testbed.experiment.plan`) and the host it stands on. It may not know what the nodes do:
it starts `python -m emulators.<role>` and reads nothing of theirs but the files of the barrier.
Architecture §7, platform.md.
"""
