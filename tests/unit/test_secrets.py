"""The name of a workload follows from its arguments, and others can see it in a job's stamp."""

from __future__ import annotations

import pytest

from advisor.core.recognise import recognise


@pytest.mark.parametrize(
    ("arguments", "workload"),
    [
        ("--input a.dat --token abc123", "--input a.dat --token ..."),
        ("--api-key=abc123 -n 4", "--api-key=... -n 4"),
        ("WANDB_API_KEY=abc123 -n 4", "WANDB_API_KEY=... -n 4"),
        ("--db-password 'x y' run", "--db-password ... run"),
        ("-H 'Authorization: Bearer abc'", "-H Authorization: Bearer ..."),
        ("Bearer abc123 run", "Bearer ... run"),
        ("--url https://ann:pw@host/data", "--url https://...@host/data"),
        ("hf_abcdefghijklmnopqrst model", "... model"),
        ("--login eyJhbGciOiJIUzI1.eyJzdWIi.SflKxw", "--login ..."),
        ("--tokenizer bpe --passes 3", "--tokenizer bpe --passes 3"),
        ("--max-tokens 512 --HF_TOKEN x", "--max-tokens 512 --HF_TOKEN ..."),
        ("--steps 100 -k 4 key.dat", "--steps 100 -k 4 key.dat"),
        ("--token", "--token"),
        ("--secret --fast", "--secret --fast"),
    ],
)
def test_what_looks_like_a_secret_is_no_part_of_a_name(arguments: str, workload: str) -> None:
    recognised = recognise(f"#!/bin/bash\nsrun ./app {arguments}\n")
    assert (recognised.application, recognised.workload) == ("app", workload)
