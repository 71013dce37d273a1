"""What people are shown, as data and sentences: the command line prints it, the TUI paints it.

Reads the store and asks the daemon; knows no terminal. Every number and every choice shown comes
from the rooms below, so that no screen has a rule of its own.
"""
