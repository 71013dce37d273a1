"""The advisor in a terminal: look at what is known of an application, and choose.

``advisor tui`` starts it. It shows what the store, the daemon and the rooms below say, and has no
rule of its own; whatever can be slow is asked for in a thread.
"""
