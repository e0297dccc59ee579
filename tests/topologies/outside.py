"""The world outside a run: cards of the host that are not ours, and the switch at the far end of their cables."""

from __future__ import annotations

from topologies.programs import run


class Outside:
    """Foreign cards, each a veth whose other end is a port of a switch in a namespace that is not ours."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.network = f"outside-{label}"
        run(["ip", "netns", "add", self.network])
        self.inside("ip", "link", "add", "tor", "mtu", "9000", "type", "bridge")
        self.inside("ip", "link", "set", "tor", "up")
        self.cards: list[str] = []

    def inside(self, *words: str) -> str:
        return run(["ip", "netns", "exec", self.network, *words])

    def card(self, mtu: int = 1500) -> str:
        """A new card of the host, as a user would have it: down, without an address."""
        number = len(self.cards)
        name, peer = f"fx{self.label}{number}", f"sw{number}"
        run(["ip", "link", "add", name, "mtu", str(mtu), "type", "veth", "peer", "name", peer, "netns", self.network])
        self.inside("ip", "link", "set", peer, "mtu", "9000", "master", "tor", "up")
        self.cards.append(name)
        return name

    def close(self) -> None:
        """Every card must be there to be removed: one that was deleted by a run fails the test."""
        for card in self.cards:
            run(["ip", "link", "del", card])
        run(["ip", "netns", "del", self.network])
