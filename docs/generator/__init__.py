"""What in docs/ and the man pages is made from the code: ``make docs``, ``make man``."""
