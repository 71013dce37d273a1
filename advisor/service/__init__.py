"""The daemon: protocol, identity of the peer, and the decision. Standard library only."""
