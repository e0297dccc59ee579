"""A finished run in the forms that other tools read, as `looplane export` makes them. Made when asked for; not kept."""

from __future__ import annotations

import io
import logging
import zipfile
from dataclasses import dataclass

from testbed.command.export import exported
from testbed.experiment.run_folder import RunFolder, RunFolderError
from webui.runs.folder import folder_of
from webui.runs.models import Run

logger = logging.getLogger(__name__)

FORMATS: dict[str, str] = {
    "perfetto": "Trace for ui.perfetto.dev",
    "csv": "Requests and tokens, CSV",
    "json": "Everything, JSON",
    "junit": "Verdict, JUnit XML",
}
"""As `looplane export --format` has them."""

CONTENT_TYPES = {".json": "application/json", ".xml": "application/xml", ".zip": "application/zip"}


class ExportFault(Exception):
    """The run cannot be exported; the sentence says why."""


@dataclass(frozen=True)
class Export:
    """A file that was made."""

    name: str
    content_type: str
    data: bytes


def export_run(run: Run, form: str) -> Export:
    """The run as `form`; several files become one zip. Raises ExportFault."""
    try:
        files = exported(RunFolder.open(folder_of(run.pk)), form)
    except (RunFolderError, ValueError, OSError) as fault:
        raise ExportFault(str(fault)) from fault
    except Exception as fault:  # a log that breaks off must not take the page down
        logger.exception("run %s cannot be exported as %s", run.pk, form)
        raise ExportFault(f"its log cannot be read ({type(fault).__name__})") from fault
    if len(files) == 1:
        ((name, data),) = files.items()
    else:
        name, data = f"{form}.zip", _zipped(files)
    return Export(name, CONTENT_TYPES.get(name[name.rindex(".") :], "application/octet-stream"), data)


def _zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()
