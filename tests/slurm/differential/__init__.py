"""Every request is submitted twice, without and with the advisor, and both are compared.

`shapes.yaml` and `scripts.yaml` are the fixed requests, `draw` makes more of the same pieces,
`cluster` is the site they are tried on, `pairs` submits and runs them, `compare` says what differs.
`python -m differential` prints the counts.
"""
