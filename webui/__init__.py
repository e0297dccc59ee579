"""The web console: a Django project that starts runs, streams their logs and serves the REST API (architecture §8).

It meets emulators and topologies only in the run folder and over runnerd's socket, and knows no system by name.
"""
