"""Models for who studies models: what the advisor fits by itself needs none of them."""
