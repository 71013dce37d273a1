"""``advisor note``: a week of jobs as a note, for oneself or for a site's admins."""

from __future__ import annotations

import argparse
import socket
from email.message import EmailMessage
from html import escape
from typing import TYPE_CHECKING

from advisor.cli.colour import say
from advisor.cli.jobs import add_span, read_span
from advisor.cli.output import print_json
from advisor.core.units import format_count

if TYPE_CHECKING:
    from advisor.views.recent import NoteAnswer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``advisor note`` takes."""
    parser.description = (
        "Sum up my jobs of the last week: how many, their energy, one suggestion, one command. "
        "Nothing sends it by itself; once a week by cron: advisor note --mail | sendmail -t"
    )
    add_span(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--mail", action="store_true", help="print a message with its header lines")
    form.add_argument("--html", action="store_true", help="print a page")
    parser.add_argument("--to", metavar="ADDRESS", help="whom the message is for (default: me)")


def run(args: argparse.Namespace) -> int:
    """Sum up and print."""
    from advisor.views.recent import note

    span = read_span(args)
    summary = note(span.jobs, span.since, span.user, span.tariff, complete=span.complete)
    if args.json:
        print_json("note", summary)
    elif args.mail:
        from advisor.store.opening import caller

        print(_message(summary, args.to or caller()), end="")
    elif args.html:
        print(_page(summary), end="")
    else:
        say(*summary.lines())
    return 0


def _message(summary: NoteAnswer, recipients: str) -> str:
    """Return a message for a program like sendmail; the header's lines hold no breaks."""
    message = EmailMessage()
    message["To"] = " ".join(recipients.split())
    jobs = format_count(summary.jobs, "job")
    message["Subject"] = f"advisor: {jobs} since {summary.day} on {socket.gethostname()}"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join([*summary.lines(), ""]), cte="quoted-printable")
    return message.as_string()


def _page(summary: NoteAnswer) -> str:
    lines = escape("\n".join(summary.lines()))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>advisor: a note</title></head><body><pre>{lines}</pre></body></html>\n"
    )
