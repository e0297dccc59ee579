"""The looplane command: a module a verb, each with `add_arguments(parser)` and `main(arguments) -> exit code`."""
