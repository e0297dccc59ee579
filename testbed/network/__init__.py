"""RoCEv2 on the wire: packets, queue pairs, memory regions, virtual lanes and the wires that carry them."""
