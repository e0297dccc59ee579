import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators import sse


def test_event_is_one_line_of_data_and_an_empty_line():
    assert sse.event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert sse.event(sse.END_OF_DATA) == sse.DONE


@pytest.mark.parametrize("data", [b"a\nb", b"a\rb", b"a\r\n"])
def test_line_end_in_data_is_refused(data):
    with pytest.raises(ValueError, match="single line"):
        sse.event(data)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b": ping\n\nevent: x\nid: 7\ndata: a\nretry: 9\n\n", [b"a"]),
        (b"event: x\n\n", []),
        (b"data: a\n\ndata: unfinished\n", [b"a"]),
        (b"datax: a\n\n", []),
        (b"", []),
    ],
)
def test_decoder_follows_the_standard_in_any_cut(stream, events):
    assert sse.Decoder().feed(stream) == events
    decoder = sse.Decoder()
    assert [data for byte in stream for data in decoder.feed(bytes([byte]))] == events


line = st.binary(max_size=8).filter(lambda data: b"\n" not in data and b"\r" not in data)


@settings(max_examples=60, deadline=None)
@given(st.lists(line, max_size=6), st.lists(st.integers(0, 80), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_what_was_encoded_comes_back_whatever_the_cuts(payloads, cuts, line_end):
    stream = b"".join(sse.event(data) for data in payloads).replace(b"\n", line_end)
    # a CR at the very end could still be half of a CRLF
    stream += b":\n" if line_end == b"\r" else b""
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    decoder = sse.Decoder()
    found = [data for a, b in itertools.pairwise(places) for data in decoder.feed(stream[a:b])]
    assert found == payloads
