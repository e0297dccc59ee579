"""The shared suites are imported by tests elsewhere; their asserts explain themselves all the same."""

import pytest

pytest.register_assert_rewrite(
    "tests.conformance.wire_contract",
    "tests.conformance.accelerator_contract",
    "tests.conformance.serving_contract",
    "tests.conformance.serving_world",
)
