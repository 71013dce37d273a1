"""``advisor store promote``: widen whose jobs an application's measurements advise."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from advisor import paths
from advisor.cli.arguments import add_application
from advisor.cli.output import print_json
from advisor.core.codec import JsonForm
from advisor.core.nearest import suggestion
from advisor.core.units import format_count
from advisor.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from advisor.store.reader import Reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor store promote`` takes."""
    parser.description = (
        "Use one user's measurements for the jobs of that user's account, or of everybody. "
        "Signatures are shared with them; --scope all also shares characterisations and rankings. "
        "Only the store's owner can do this. What is shared cannot be made private again."
    )
    add_application(parser, "the application")
    parser.add_argument(
        "--scope",
        required=True,
        choices=("account", "all"),
        help="whose jobs the measurements may advise",
    )
    parser.add_argument("--contributor", metavar="USER", help="only this user's measurements")


@dataclass(frozen=True, slots=True)
class PromoteAnswer(JsonForm):
    """How many runs advise more users now."""

    application: str
    workload: str | None
    scope: Literal["account", "all"]
    contributor: str | None
    promoted: int
    estimates: int
    without_account: int
    next: str


def run(args: argparse.Namespace) -> int:
    """Widen the scope; exit code 3 when there was nothing to widen."""
    from advisor.derive.worker import deriving
    from advisor.store.opening import is_owner
    from advisor.store.rankings import promote_estimates
    from advisor.store.reader import Reader
    from advisor.store.signatures import promote_signatures

    path = paths.whole_store(args.db)
    with Reader(path) as store:
        _check_names(store, args)
        live = not store.published
    if not live:
        raise RefusedError(
            f"{path} is a published copy", hint="promote in the store itself, then publish again"
        )
    if not is_owner(path):
        raise RefusedError(f"{path} is not yours", hint="ask the store's owner to promote")
    with deriving(path, first=args.application) as store:
        widened = store.promote(
            args.application, args.workload, scope=args.scope, contributor=args.contributor
        )
        estimates = 0
        if args.scope == "all":
            estimates = promote_estimates(store, args.application, args.workload, args.contributor)
        estimates += promote_signatures(
            store, args.application, args.workload, scope=args.scope, contributor=args.contributor
        )
        chosen = [
            stored.observation
            for stored in store.observations(args.application, args.workload)
            if args.contributor in (None, stored.observation.contributor)
        ]
    narrow = Counter(run.contributor for run in chosen if run.scope == "own")
    if not widened and not estimates:
        if narrow:
            raise RefusedError(
                f"nothing to do: no account is known for the runs of {_contributor_list(narrow)}",
                hint="share them with everybody: --scope all",
            )
        raise RefusedError(
            f"nothing to do: all {format_count(len(chosen), 'run')} are shared that widely already"
        )
    next_command = f"advisor fit {shlex.quote(args.application)}"
    if args.workload is not None:
        next_command += f" --workload {args.workload}"
    if args.json:
        print_json(
            "promote",
            PromoteAnswer(
                application=args.application,
                workload=args.workload,
                scope=args.scope,
                contributor=args.contributor,
                promoted=widened,
                estimates=estimates,
                without_account=sum(narrow.values()),
                next=next_command if widened else "",
            ),
        )
        return 0
    beneficiaries = "everybody's jobs" if args.scope == "all" else "the jobs of their accounts"
    if estimates:
        print(
            f"characterisations, rankings and signatures of {args.application} now advise "
            f"{beneficiaries}"
        )
    if not widened:
        return 0
    verb = "advises" if widened == 1 else "advise"
    print(f"{format_count(widened, 'run')} of {args.application} now {verb} {beneficiaries}")
    if narrow:
        print(f"not shared, because no account is known: {_contributor_list(narrow)}")
    print(f"the models have not changed yet; next: {next_command}")
    return 0


def _check_names(store: Reader, args: argparse.Namespace) -> None:
    from advisor.store.rankings import characterisations
    from advisor.store.signatures import signatures

    names = [w.name for w in store.workloads(args.application)]
    if not names:
        applications = {w.application for w in store.workloads()}
        raise UsageError(
            f"nothing is stored for application {args.application!r}",
            hint=suggestion(args.application, applications),
        )
    if args.workload is not None and args.workload not in names:
        raise UsageError(
            f"{args.application} has no workload {args.workload!r}",
            hint=suggestion(args.workload, names),
        )
    if args.contributor is not None:
        measurements = store.observations(args.application, args.workload)
        users = {stored.observation.contributor for stored in measurements}
        users |= {c.contributor for c in characterisations(store, args.application)}
        users |= {s.signature.contributor for s in signatures(store, args.application)}
        if args.contributor not in users:
            raise UsageError(
                f"{args.contributor} measured nothing of {args.application}",
                hint=suggestion(args.contributor, users),
            )


def _contributor_list(counts: Counter[str]) -> str:
    return ", ".join(f"{user} ({n})" for user, n in sorted(counts.items()))
