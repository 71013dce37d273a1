"""What a program does over and over: its iterations, and runs that end early by them.

Everything here reads events and readings one after the other, in the order in which they
come; files are only one source of them. The daemon, the hooks and collect never import this room.
"""
