"""``advisor cc``: compile as asked, and beside it a traced twin of the program.

The compiler itself makes what the command line says, untouched. Of every object a second one is
compiled with the compiler's memory-access callbacks (``-fsanitize=thread``, without the thread
sanitizer) and kept inside the first, in a section the linker leaves out; so archives, copies and
moves carry it along. When a program is linked, its twin is linked of those objects and our own
run-time part (``trace/streams.c``), beside it as ``NAME.traced``. A twin that cannot be made never
fails the build.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from advisor.drafts import draft
from advisor.errors import AdvisorError, UsageError
from advisor.instruments.native import SOURCES, built, compiler, first_error

SUFFIX = ".traced"
SECTION = ".advisor.twin"
_MARK = b"AVTWIN1\0"
_SOURCES = ".c .i .cc .cp .cxx .cpp .c++ .ii .f .for .ftn .f77 .f90 .f95 .f03 .f08 .f18"
_VALUED = (
    "-o -I -L -l -D -U -B -J -x -T -u -z -e -A -G -include -imacros -isystem -iquote -idirafter"
    " -isysroot -iprefix -iwithprefix -MF -MT -MQ -Xlinker -Xassembler -Xpreprocessor -Xclang"
    " -mllvm -target -arch -framework --param -aux-info -dumpbase -dumpdir -wrapper"
)
_QUESTIONS = "-E -S -M -MM -fsyntax-only -### -r -shared --help --version"
_SOURCE, _TAKE_VALUE = frozenset(_SOURCES.split()), frozenset(_VALUED.split())
_ONLY_ASK = frozenset(_QUESTIONS.split())
# What writes further files, or instruments the program itself: the twin goes without.
_NOT_TWICE = (
    "-M",
    "-Wp,-M",
    "-fsanitize",
    "-flto",
    "-fprofile",
    "--coverage",
    "-ftest-coverage",
    "-save-temps",
    "--save-temps",
    "-fdump-",
    "-gsplit-dwarf",
    "-Werror",
    "-fstack-usage",
    "-pg",
    "-static",
    "-Wl,-Map",
    "-fcallgraph-info",
)
# The macro tells programs of the sanitizer, which would take another way in the twin.
_TRACE = ("-fsanitize=thread", "-U__SANITIZE_THREAD__", "-g1", "-w")

CompilerStep = Literal["ask", "compile", "link"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a compiler, taken apart.

    ``inputs`` are its positional arguments, with their places in ``arguments``; ``output`` is
    what ``-o`` names, "" when nothing does.
    """

    compiler: str
    arguments: tuple[str, ...]
    mode: CompilerStep
    inputs: tuple[tuple[int, str], ...]
    output: str

    @property
    def sources(self) -> tuple[str, ...]:
        """The inputs that are compiled."""
        return tuple(name for _, name in self.inputs if _is_source(name))


def understand(argv: Sequence[str]) -> Invocation:
    """Take a command line apart; a first word that names a program is the compiler to use.

    Raises UsageError when there is nothing to do, AdvisorError when there is no compiler.
    """
    words = [part for word in argv for part in _expand(word)]
    chosen = ""
    if words and not words[0].startswith("-") and not _is_input(words[0]):
        chosen = shutil.which(words.pop(0)) or ""
        if not chosen:
            raise AdvisorError(f"there is no compiler {argv[0]}")
    if not words:
        raise UsageError("nothing to compile", hint="advisor cc [COMPILER] -O2 -fopenmp FILE ...")
    inputs, output, previous, ask = [], "", "", False
    for word_index, word in enumerate(words):
        if previous in _TAKE_VALUE:
            output = word if previous == "-o" else output
            previous = ""
            continue
        previous = word
        if _names_output(word):
            output = word[2:]
        elif word == "-":
            ask = True  # a program from standard input cannot be read twice
        elif not word.startswith("-"):
            inputs.append((word_index, word))
        elif word in _ONLY_ASK:
            ask = True
    something = inputs or any(word.startswith("-l") for word in words)
    mode: CompilerStep = "ask" if ask or not something else "compile" if "-c" in words else "link"
    return Invocation(chosen or compiler(), tuple(words), mode, tuple(inputs), output)


def compile_twice(argv: Sequence[str]) -> tuple[int, str]:
    """Compile or link as asked and make the twin; return the compiler's exit code and a warning.

    The warning says in one line why there is no twin, "" when there is one or none was to be.
    Raises UsageError and AdvisorError as :func:`understand`, and when the compiler cannot be run.
    """
    call = understand(argv)
    try:
        code = subprocess.run([call.compiler, *call.arguments]).returncode
    except OSError as error:
        raise AdvisorError(f"cannot run {call.compiler}: {error.strerror}") from error
    if code != 0 or call.mode == "ask":
        return code, ""
    try:
        with tempfile.TemporaryDirectory(prefix="advisor-cc-") as folder:
            if call.mode == "compile":
                _compile(call, Path(folder))
            else:
                _link(call, Path(folder))
    except (AdvisorError, OSError) as error:
        return 0, f"no traced twin of {call.output or 'a.out'}: {error}"
    return 0, ""


def _compile(call: Invocation, folder: Path) -> None:
    for source in call.sources:
        target = Path(call.output or Path(source).with_suffix(".o").name)
        if target.is_file():
            twin = folder / "twin.o"
            _run([call.compiler, *_twin_flags(call, folder), "-c", source, "-o", str(twin)])
            _embed(target, twin)


def _link(call: Invocation, folder: Path) -> None:
    output = Path(call.output or "a.out")
    if not output.is_file():
        return
    replaced: dict[int, list[str]] = {}
    for number, (word_index, name) in enumerate(call.inputs):
        if _is_source(name):
            twin = folder / f"{number}.o"
            _run([call.compiler, *_twin_flags(call, folder), "-c", name, "-o", str(twin)])
            replaced[word_index] = [str(twin)]
        elif name.endswith((".o", ".obj", ".a")):
            twins = _twins(Path(name), folder / f"{number}")
            if twins is not None:
                replaced[word_index] = twins
    for word_index, library in _libraries(call):
        twins = _twins(library, folder / f"l{word_index}")
        if twins is not None:
            replaced[word_index] = twins
    if not replaced:
        raise AdvisorError("none of its objects was compiled with advisor cc")
    words: list[str] = []
    own_words = _without(call.arguments, keep_inputs=True)
    for word_index, word in own_words:
        words += replaced.get(word_index, [word])
    runtime = built(
        "streams.o",
        [SOURCES / "trace" / "streams.c"],
        ["-O2", "-c", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec"],
        headers=[SOURCES / "trace" / "sites.h", SOURCES / "trace" / "regions.h"],
    )
    traced_program = folder / "program"
    _run([call.compiler, *words, str(runtime), "-ldl", "-lpthread", "-o", str(traced_program)])
    traced = output.with_name(output.name + SUFFIX)
    with draft(traced.parent, traced.name) as draft_path:
        shutil.copy2(traced_program, draft_path)
        draft_path.replace(traced)


def _run(command: Sequence[str]) -> None:
    process = subprocess.run(
        command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
    )
    if process.returncode != 0:
        raise AdvisorError(first_error(process.stderr))


def _without(words: Sequence[str], *, keep_inputs: bool) -> Iterator[tuple[int, str]]:
    """Yield the words that also hold for the twin, with their places."""
    skip, take = False, False
    for word_index, word in enumerate(words):
        if skip or take:
            if take:
                yield word_index, word
            skip = take = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word in ("-c", "-s") or word.startswith(_NOT_TWICE) or _names_output(word):
            continue
        elif word in _TAKE_VALUE:
            take = True
            yield word_index, word
        elif word.startswith("-") or keep_inputs:
            yield word_index, word


def _twin_flags(call: Invocation, folder: Path) -> list[str]:
    flags = [word for _, word in _without(call.arguments, keep_inputs=False)]
    if any(Path(s).suffix.lower().startswith(".f") for s in call.sources):
        modules = [flags[i + 1] for i, f in enumerate(flags[:-1]) if f == "-J"]
        flags += ["-I", modules[-1] if modules else ".", "-J", str(folder)]
    return [*flags, *_TRACE, *_quiet_entries(call.compiler)]


def _quiet_entries(compiler: str) -> list[str]:
    """Return the flags that spare calls at the begin and end of functions, if it knows them."""
    for flags in (
        ["--param=tsan-instrument-func-entry-exit=0"],
        ["-mllvm", "-tsan-instrument-func-entry-exit=0"],
    ):
        tried = [compiler, *flags, "-x", "c", "-c", "/dev/null", "-o", "/dev/null"]
        if subprocess.run(tried, capture_output=True).returncode == 0:
            return flags
    return []


# -- what is kept inside an object -------------------------------------------------------------


def _embed(target: Path, twin: Path) -> None:
    """Put a twin into its object, which keeps its place, mode and time."""
    data = twin.read_bytes()
    wrapped, merged = twin.with_suffix(".section"), twin.with_suffix(".made")
    # Padded to 8 bytes, for ld -r puts the sections of several objects one behind the other.
    wrapped.write_bytes(_MARK + struct.pack("<Q", len(data)) + data + b"\0" * (-len(data) % 8))
    objcopy = shutil.which("objcopy")
    if objcopy is None:
        raise AdvisorError("objcopy is missing", hint="install binutils")
    _run(
        [
            objcopy,
            "--remove-section",
            SECTION,
            "--add-section",
            f"{SECTION}={wrapped}",
            "--set-section-flags",
            f"{SECTION}=exclude,readonly",
            str(target),
            str(merged),
        ]
    )
    times = target.stat()
    with target.open("wb") as stream:
        stream.write(merged.read_bytes())
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def embedded(data: bytes) -> list[bytes]:
    """Return the twins inside an object file (several after ``ld -r``), none if it has none."""
    section = _elf_section(data)
    twins = []
    while section.startswith(_MARK):
        size = struct.unpack_from("<Q", section, 8)[0]
        twins.append(section[16 : 16 + size])
        section = section[16 + size + -size % 8 :]
    return twins


def _elf_section(data: bytes) -> bytes:
    if data[:5] != b"\x7fELF\x02" or len(data) < 64:
        return b""
    order = "<" if data[5] == 1 else ">"
    table_offset, size, count, names = struct.unpack_from(f"{order}Q10xHHH", data, 40)
    rows = [
        struct.unpack_from(f"{order}IIQQQQ", data, table_offset + n * size) for n in range(count)
    ]
    if names >= count:
        return b""
    for name, _, _, _, offset, length in rows:
        begin = rows[names][4] + name
        if data[begin : data.index(b"\0", begin)] == SECTION.encode():
            return data[offset : offset + length]
    return b""


def _twins(path: Path, folder: Path) -> list[str] | None:
    """Return the traced files to link in place of an object or archive, None when it has none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    if not data.startswith(b"!<arch>\n"):
        names = []
        for n, twin in enumerate(embedded(data)):
            file = folder / f"{n}.o"
            file.write_bytes(twin)
            names.append(str(file))
        return names or None
    members, any_twin = [], False
    for n, member in enumerate(_members(data)):
        twins = embedded(member)
        any_twin = any_twin or bool(twins)
        for k, content in enumerate(twins or [member]):
            file = folder / f"{n}-{k}.o"
            file.write_bytes(content)
            members.append(str(file))
    if not any_twin:
        return None
    archive = folder / path.name
    _run([shutil.which("ar") or "ar", "rcs", str(archive), *members])
    return [str(archive)]


def _members(data: bytes) -> Iterator[bytes]:
    """Yield the object files of an archive."""
    offset = 8
    while offset + 60 <= len(data):
        # A header of 60 bytes, then the file, filled up to an even length.
        name, size = data[offset : offset + 16].rstrip(), int(data[offset + 48 : offset + 58])
        if name not in (b"/", b"//", b"/SYM64/"):
            yield data[offset + 60 : offset + 60 + size]
        offset += 60 + size + size % 2


def _libraries(call: Invocation) -> Iterator[tuple[int, Path]]:
    """Yield the archives that ``-lNAME`` finds in the folders named with ``-L``."""
    words = call.arguments
    folders = [
        Path(word[2:] or (words[word_index + 1] if word_index + 1 < len(words) else "."))
        for word_index, word in enumerate(words)
        if word.startswith("-L")
    ]
    for word_index, word in enumerate(words):
        if word.startswith("-l") and len(word) > 2:
            for folder in folders:
                # The linker takes a shared library before an archive, and that has no twin.
                if (folder / f"lib{word[2:]}.so").exists() and "-static" not in words:
                    break
                if (folder / f"lib{word[2:]}.a").exists():
                    yield word_index, folder / f"lib{word[2:]}.a"
                    break


def _names_output(word: str) -> bool:
    """Tell whether a word is ``-oNAME`` in one."""
    return word.startswith("-o") and len(word) > 2 and not word.startswith("-openmp")


def _is_source(name: str) -> bool:
    return Path(name).suffix.lower() in _SOURCE


def _is_input(name: str) -> bool:
    return _is_source(name) or name.endswith((".o", ".a", ".so", ".s", ".S", ".obj"))


def _expand(word: str) -> list[str]:
    """Return the words of a response file (``@FILE``), or the word itself."""
    if word.startswith("@") and Path(word[1:]).is_file():
        return shlex.split(Path(word[1:]).read_text(errors="surrogateescape"))
    return [word]
