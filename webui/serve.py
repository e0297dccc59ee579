"""The web process: uvicorn on a listening socket that the supervisor opened, so that a restart refuses nobody.

`python -m webui.serve --fd N`, or `--host`/`--port` by hand. Per-message deflate is off: it doubles the cost of a
live stream and saves nothing on loopback (design/console.md §2).
"""

from __future__ import annotations

import argparse
import importlib
import socket
import threading
import warnings

import uvicorn

GRACE_S = 3


def main() -> None:
    """Serves until SIGTERM; live streams get a few seconds to end."""
    parser = argparse.ArgumentParser(prog="webui.serve")
    parser.add_argument("--fd", type=int, help="number of an inherited listening socket")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8400)
    arguments = parser.parse_args()
    # WhiteNoise serves files as synchronous iterators; they are small, and Django says so on every start.
    warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
    config = uvicorn.Config(
        "webui.asgi:application",
        host=arguments.host,
        port=arguments.port,
        log_level="warning",
        ws_per_message_deflate=False,
        ws_max_size=4096,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
    )
    # Reading every experiment takes seconds; whoever opens the catalogue first need not wait for all of it.
    threading.Thread(target=_read_catalogue, daemon=True).start()
    server = uvicorn.Server(config)
    if arguments.fd is None:
        server.run()
        return
    # From the number alone Python asks the kernel for family and type; uvicorn's own --fd takes it for a unix socket,
    # which leaves Nagle's algorithm on.
    server.run(sockets=[socket.socket(fileno=arguments.fd)])


def _read_catalogue() -> None:
    importlib.import_module("webui.asgi")
    importlib.import_module("webui.catalogue.selectors").experiment_list()


if __name__ == "__main__":
    main()
