"""How each scheduler says what a job asks for: one translator per scheduler, found by name.

A translator is a module: it reads a request as that scheduler's hook sends it, and writes a
choice back in that scheduler's own options. Standard library only: the daemon uses it. A site
adds one, beside its backend, by an entry point ``advisor.translators``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Protocol, cast

from advisor import plugins
from advisor.core.availability import Availability
from advisor.core.axes import AxisWriting
from advisor.core.configuration import Configuration
from advisor.core.inventory import NodeType
from advisor.core.request import JobRequest
from advisor.core.script_use import THREAD_VARIABLES, ScriptUse
from advisor.errors import UnknownNameError


class Translator(Protocol):
    """What a scheduler's options module offers. Options go by long name, values are strings."""

    @property
    def SUBMIT(self) -> str:  # noqa: N802
        """The command that submits a job script."""

    @property
    def DIRECTIVE(self) -> str:  # noqa: N802
        """What a script's own lines of options begin with."""

    @property
    def LEFT_ALONE(self) -> str:  # noqa: N802
        """How a job is submitted that the advisor leaves alone, up to the script's name."""

    @property
    def FOLLOWS(self) -> Mapping[str, str]:  # noqa: N802
        """The variables in which a job finds the value of an option, by option."""

    @property
    def SETTINGS(self) -> tuple[str, ...]:  # noqa: N802
        """The variables that say where the scheduler's own configuration is."""

    @property
    def SETS_THREADS(self) -> tuple[str, ...]:  # noqa: N802
        """The thread variables that the scheduler itself sets in every job."""

    @property
    def AXES(self) -> Mapping[str, AxisWriting]:  # noqa: N802
        """How the scheduler itself has further axes written, by axis."""

    @property
    def SITE_AXES(self) -> bool:  # noqa: N802
        """Whether a site may have axes written otherwise (``axes`` in site.yaml)."""

    def axes_kept(
        self, request: JobRequest, use: ScriptUse, settings: Mapping[str, str]
    ) -> tuple[str, str]:
        """Return why :attr:`AXES` do not reach a job's GPUs, and why its nodes set nothing there.

        "" where they do. ``settings`` as for :meth:`cap_obstacle`.
        """

    def array_task(self, number: str) -> dict[str, str]:
        """Return the variables in which a task of a job array finds its number; "": it is none."""

    def bound_ranks(self, binding: str) -> dict[str, str] | None:
        """Return the variables by which the scheduler's own launcher binds ranks to cores.

        ``binding`` is one that ``advisor.core.placement.check_binding`` accepts. None where the MPI
        library binds them. Raises ValueError for what the launcher cannot do.
        """

    @property
    def NOT_SWEPT(self) -> frozenset[str]:  # noqa: N802
        """Options that a job's sweep does without: where output goes, when the job starts, how
        long it may take. All others are part of what is measured."""

    @property
    def TIME_LIMIT(self) -> str:  # noqa: N802
        """The option that limits a job's time, as ``h:mm:ss``."""

    def launched(self, command: str, ranks: int) -> str:
        """Return the line of a script that starts a command on all ranks of its job."""

    def limited(self, limits: str, nodes: int, options: Mapping[str, str]) -> dict[str, str]:
        """Return a job's options with limits as PBS's ``-l`` has them: ``mem=4gb,file=1gb``.

        ``nodes`` share what is a limit of the whole job. Raises ValueError for a limit that is not
        known, or that says how large the job is.
        """

    def read_directives(
        self, script: str, given: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """Return the options of a script's own lines.

        ``given`` are options of the command line or the environment, which may say which lines of a
        script count. Whoever has none leaves it out.
        """

    def without(self, line: str, names: Collection[str]) -> str:
        """Return a script's own line of options as it is beside lines below it that set ``names``.

        "" where it holds nothing else. What else it holds stays as it is written.
        """

    def read_arguments(self, words: Iterable[str]) -> dict[str, str]:
        """Return the options of a command line, up to the first word that is none."""

    def environment_options(self) -> dict[str, str]:
        """Return the options that this process's environment sets."""

    def parse_request(
        self, payload: Mapping[str, object], *, user: str, uid: int, choices: Mapping[str, object]
    ) -> JobRequest:
        """Return the request a hook sent. Raises ValueError for what makes no sense."""

    def fold(self, request: JobRequest, availability: Availability | None) -> JobRequest:
        """Return the request as the scheduler will complete it, what its limits bind bound.

        Called before anything is decided; ``availability`` is None where nothing is known.
        """

    def cap_obstacle(self, request: JobRequest, use: ScriptUse, settings: Mapping[str, str]) -> str:
        """Return why a frequency cap would not reach the job's program, "" where it does.

        ``settings``: the scheduler's own, as :class:`Availability` has them. This is the one place
        that says so of a job: nothing is promised that would not happen.
        """

    def caps_on_nodes(self, request: JobRequest, settings: Mapping[str, str]) -> bool:
        """Tell whether each node of a job caps whatever runs there, as the job's stamp names it.

        Asked where :meth:`cap_obstacle` says that the job's own options reach no program.
        """

    @property
    def CAPS_OWN_CORES(self) -> bool:  # noqa: N802
        """Whether a cap in a job's options is on the job's own cores alone, not on its nodes."""

    def plans_steps(self, request: JobRequest) -> bool:
        """Tell whether a job's steps look up where they start what the job's plan says of them."""

    def render(
        self,
        baseline: Configuration,
        chosen: Configuration,
        node_type: NodeType,
        request: JobRequest,
        *,
        pin_node_type: bool,
        whole: bool = True,
        variables: tuple[str, ...] = THREAD_VARIABLES,
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return (options to write, variables to set).

        Raises ValueError where it cannot, CannotWriteError where all but one axis can be written.

        ``baseline`` is the job as written, on the chosen node type; ``pin_node_type`` binds it to
        that. ``whole``: the job has its nodes for itself, and ``variables`` set its program's
        threads; otherwise the request becomes smaller.
        """

    def asking_for(
        self,
        configuration: Configuration,
        node_type: NodeType,
        *,
        threads: bool = True,
        constraint: bool = True,
        memory_mb: float = 0.0,
        freq_khz: int = 0,
    ) -> dict[str, str]:
        """Return the options of a job that asks for a configuration on whole nodes of a type.

        ``threads`` and ``constraint`` say whether it states its threads and names the node type;
        ``memory_mb`` of each node and the cap ``freq_khz`` are stated where they are not 0.
        """

    def written(self, options: Mapping[str, str]) -> list[tuple[str, ...]]:
        """Return options as they are typed: the words of each."""


@cache
def translator(scheduler: str) -> Translator:
    """Return a scheduler's translator. Raises InputError for a scheduler nobody knows."""
    if scheduler not in plugins.names("translators"):
        names = ", ".join(plugins.names("translators"))
        raise UnknownNameError(f"unknown scheduler {scheduler!r}", hint=f"choose from: {names}")
    return cast(Translator, plugins.load("translators", scheduler))


def writing_of(axis: str, scheduler: str, of_site: Mapping[str, AxisWriting]) -> AxisWriting | None:
    """Return how an axis is written into a job: as the site may say, else as its scheduler does."""
    language = translator(scheduler)
    own_writing = language.AXES.get(axis)
    return of_site.get(axis, own_writing) if language.SITE_AXES else own_writing
