from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.serving.text_model import TEXTS, TextModel, bundled_text, bundled_text_model
from testbed.serving.tokens import ByteVocabulary, DeepSeekVocabulary, TokenText

BYTES = ByteVocabulary()
EOS = BYTES.eos


def say(model: TextModel, tokens: int, *, tail: tuple[int, int], seed: int = 1, **how: object) -> list[int]:
    settings_ = {"temperature": 1.0, "top_p": 1.0, "ignore_eos": True, **how}
    said: list[int] = []
    for place in range(tokens):
        token = model.next_token(tail, seed=seed, place=place, **settings_)  # type: ignore[arg-type]
        said.append(token)
        tail = (tail[1], token)
    return said


def test_two_tokens_of_context_are_used_where_the_text_went_on_in_two_ways() -> None:
    model = TextModel("xab\nxac\nyad\n", BYTES)
    found = model.distribution(ord("x"), ord("a"), ignore_eos=True)
    assert set(found.tokens) == {ord("b"), ord("c")}


def test_one_token_of_context_where_two_were_always_followed_by_the_same() -> None:
    model = TextModel("xab\nyac\n", BYTES)
    assert set(model.distribution(ord("x"), ord("a"), ignore_eos=True).tokens) == {ord("b"), ord("c")}


def test_what_was_never_seen_begins_a_paragraph() -> None:
    model = TextModel("dog\ncat\ncow\n", BYTES)
    found = model.distribution(1, 2, ignore_eos=True)
    assert found.tokens[0] == ord("c")
    assert set(found.tokens) == {ord("c"), ord("d")}


def test_a_paragraph_may_end_unless_the_end_is_ignored() -> None:
    model = TextModel("ab\nab\n", BYTES)
    newline = ord("\n")
    assert EOS in model.distribution(ord("b"), newline, ignore_eos=False).tokens
    assert EOS not in model.distribution(ord("b"), newline, ignore_eos=True).tokens


def test_the_last_paragraph_has_an_end_even_if_nothing_follows() -> None:
    model = TextModel("ab\n", BYTES)
    assert model.distribution(ord("b"), ord("\n"), ignore_eos=False).tokens == (EOS,)
    assert model.distribution(ord("b"), ord("\n"), ignore_eos=True).tokens == (ord("a"),)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_nothing_to_learn_from_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no paragraph"):
        TextModel(text, BYTES)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), prompt=st.text(min_size=2, max_size=20))
def test_the_same_seed_says_the_same(seed: int, prompt: str) -> None:
    one, two = TextModel(TEXT, BYTES), TextModel(TEXT, BYTES)
    ids = BYTES.encode(prompt)
    tail = (ids[-2], ids[-1])
    say(two, 5, tail=(1, 2), seed=9)  # what it was asked before makes no difference
    assert say(one, 30, tail=tail, seed=seed) == say(two, 30, tail=tail, seed=seed)


def test_with_the_end_ignored_it_never_ends() -> None:
    model = TextModel(TEXT, BYTES)
    assert EOS not in say(model, 2_000, tail=(1, 2))
    assert EOS in say(model, 2_000, tail=(1, 2), ignore_eos=False)


def test_memory_is_bounded(deepseek: DeepSeekVocabulary) -> None:
    model = bundled_text_model(deepseek)
    for number in range(60_000):
        model.next_token((number, number), seed=1, place=0, temperature=1.0, top_p=1.0, ignore_eos=True)
    assert len(model._nuclei) <= 50_000
    assert len(model._distributions) <= 50_000


def test_the_bundled_text_is_readable_and_has_pieces_of_characters(deepseek: DeepSeekVocabulary) -> None:
    model = bundled_text_model(deepseek)
    ids = deepseek.encode("Alice was not a bit hurt")
    said = say(model, 400, tail=(ids[-2], ids[-1]), seed=3)
    text = TokenText(deepseek)
    words = "".join(text.push(token) for token in said)
    assert "\ufffd" not in words
    assert sum(word.strip(",.!?’‘") in bundled_text() for word in words.split()) > 0.9 * len(words.split())
    assert any(not deepseek.token_bytes(token).decode(errors="ignore") for token in deepseek.encode(bundled_text()))


def test_the_bundled_texts_have_their_rights_written_down() -> None:
    readme = (TEXTS / "README.md").read_text()
    for path in TEXTS.glob("*.txt"):
        assert f"`{path.name}`" in readme
    assert TextModel.synthetic


TEXT = "the cat sat on the mat\nthe dog ate the cat\na cat is a cat\n"
