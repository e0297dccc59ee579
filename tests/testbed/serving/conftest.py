from __future__ import annotations

import pytest

from testbed.serving.tokens import DeepSeekVocabulary, deepseek_vocabulary


@pytest.fixture(scope="session")
def deepseek() -> DeepSeekVocabulary:
    return deepseek_vocabulary()
