"""``advisor lab bench forget``: delete the profiles of one kernel that a user brought."""

from __future__ import annotations

import argparse

from advisor import paths
from advisor.cli.asking import ask
from advisor.cli.bench_answers import BenchAnswer, ForgottenKernel
from advisor.cli.bench_places import rank_again
from advisor.cli.output import print_json
from advisor.core.units import format_count
from advisor.errors import RefusedError, UsageError


def forget_one(args: argparse.Namespace) -> int:
    """Delete one kernel's profiles, on the named node types or all; rank again without them.

    Raises UsageError where it is not clear which kernel is meant, RefusedError for a store of
    somebody else.
    """
    from advisor.store.opening import is_owner
    from advisor.store.profiles import forget_kernel, profiles
    from advisor.store.reader import Reader
    from advisor.store.writer import Writer

    names, path = args.microbenchmark or [], paths.whole_store(args.db)
    if len(names) != 1:
        raise UsageError(
            "which kernel is to be forgotten?",
            hint="advisor lab bench forget --microbenchmark NAME; bench show lists them",
        )
    name = names[0]
    with Reader(path) as reader:
        user_profiles = [p for p in profiles(reader) if p.contributor]
        published = reader.published
    matching_profiles = [
        p for p in user_profiles if p.microbenchmark == name and args.by in (None, p.contributor)
    ]
    if args.node_type:
        matching_profiles = [p for p in matching_profiles if p.node_type in args.node_type]
    users = sorted({p.contributor for p in matching_profiles})
    if not users:
        where = f" on {', '.join(args.node_type)}" if args.node_type else ""
        owner_words = f" by {args.by}" if args.by else ""
        kernel_names = sorted({f"{p.microbenchmark} by {p.contributor}" for p in user_profiles})
        raise UsageError(
            f"there is no kernel {name}{owner_words}{where}",
            hint=f"kernels that users brought: {', '.join(kernel_names) or 'none'}; of the "
            "suite's own only all of a node type can be dropped, by advisor lab bench --replace",
        )
    if len(users) > 1:
        raise UsageError(
            f"{' and '.join(users)} each have a kernel {name}", hint="--by USER names one"
        )
    if published or not is_owner(path):
        raise RefusedError(f"{path} is not yours to change", hint="ask the store's owner")
    ask(args, [f"{name} by {users[0]}: {format_count(len(matching_profiles), 'profile')}"])
    with Writer(path) as writer:
        changed_types = forget_kernel(writer, name, users[0], args.node_type or ())
    ranked = rank_again(args)
    if args.json:
        forgotten = [ForgottenKernel(t, name, users[0]) for t in changed_types]
        print_json("bench", BenchAnswer(forgotten, ranked))
    else:
        print(f"forgotten: {name} by {users[0]} on {', '.join(changed_types)}")
        if ranked.rankings:
            print(ranked.rankings)
    return 0
