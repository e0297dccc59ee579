"""Where messages may go: no way from a user's address into the console's own network."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webui.hooks.destinations import BadDestination, checked_address, destination_of, is_public

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("https://ci.example.org", "ci.example.org", "/"),
        ("http://ci.example.org:8080/a?b=c", "ci.example.org:8080", "/a?b=c"),
        ("https://ci.example.org:443/x", "ci.example.org", "/x"),
        ("http://[2606:2800:220:1::1]/", "[2606:2800:220:1::1]", "/"),
    ],
)
def test_addresses(url: str, authority: str, target: str) -> None:
    to = destination_of(url)
    assert (to.authority, to.target) == (authority, target)


@pytest.mark.parametrize(
    "url",
    ["", "ci.example.org", "ftp://ci.example.org", "file:///etc/passwd", "gopher://x", "http://", "http:///x",
     "http://user@ci.example.org", "http://user:word@ci.example.org", "http://ci.example.org/#a",
     "http://ci.example.org:0/", "http://ci.example.org:99999/", "http://ci.example.org:x/", "http://[::1/",
     "http://ci.example.org/\r\nX: y", "http://ci.example.org/ x", "http://ci.exämple.org/", "http://x/" + "y" * 500],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_words(url: str) -> None:
    with pytest.raises(BadDestination, match=r"\w+ .*\."):
        destination_of(url)


INSIDE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "2001:0:a00:1::1", "::7f00:1", "::a9fe:a9fe", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_inside_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    to = destination_of("http://ci.example.org/")
    with pytest.raises(BadDestination, match="LOOPLANE_HOOK_HOSTS"):
        checked_address(to, (), lambda *_: [address])
    with pytest.raises(BadDestination):  # one bad address of several is enough
        checked_address(to, (), lambda *_: [PUBLIC, address])


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"])
def test_public_ones_are_taken(address: str) -> None:
    assert checked_address(destination_of("http://ci.example.org/"), (), lambda *_: [address]) == address


@given(
    st.ip_addresses(network="10.0.0.0/8") | st.ip_addresses(network="127.0.0.0/8") | st.ip_addresses(network="fd00::/8")
)
def test_nothing_private_is_public(address: ipaddress.IPv4Address) -> None:
    assert not is_public(address)


def test_the_installation_can_allow_hosts_and_networks() -> None:
    to = destination_of("http://CI.intranet/")
    assert checked_address(to, ("ci.intranet",), lambda *_: ["10.0.0.7"]) == "10.0.0.7"
    assert checked_address(to, ("10.0.0.0/24",), lambda *_: ["10.0.0.7"]) == "10.0.0.7"
    with pytest.raises(BadDestination):
        checked_address(to, ("10.0.1.0/24", "other.intranet"), lambda *_: ["10.0.0.7"])


def test_odd_spellings_of_this_machine_are_found_out() -> None:
    """What the system's resolver makes of them is what is checked."""
    for host in ("localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]"):
        with pytest.raises(BadDestination):
            checked_address(destination_of(f"http://{host}/"), ())


def test_a_name_that_nobody_knows() -> None:
    def nobody(*_: object) -> list[str]:
        raise OSError

    with pytest.raises(BadDestination, match="not known"):
        checked_address(destination_of("http://nobody.invalid/"), (), nobody)


@pytest.mark.parametrize("host", ["a..b", ".example", "a" * 64 + ".example"])
def test_a_name_that_cannot_be_one_is_not_known(host: str) -> None:
    with pytest.raises(BadDestination, match="not known"):
        checked_address(destination_of(f"http://{host}/"), ())


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "017700000001", "[::ffff:7f00:1]", "[::127.0.0.1]"])
def test_other_spellings_of_this_machine_lead_nowhere(host: str) -> None:
    with pytest.raises(BadDestination, match="not public"):
        checked_address(destination_of(f"http://{host}/"), ())
