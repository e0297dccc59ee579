"""`python -m testbed.comparison RUN_FOLDER PLACE`: reads a finished run's logs once and keeps its digest in PLACE.

A process of its own, so that whoever asks (a web server) stays free. Exit 2 where the run cannot be read; the digest
then says why.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.comparison.digest import make_digest
from testbed.experiment.run_folder import RunFolder


def main(words: list[str]) -> int:
    """Exit code."""
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    digest = make_digest(RunFolder(words[0]), Path(words[1]))
    if digest.fault:
        print(digest.fault, file=sys.stderr)
    return 2 if digest.fault else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
