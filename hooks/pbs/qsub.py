#!/usr/bin/python3 -IS
"""Goes before PBS's qsub on login nodes: tells the advisor what a job runs, then becomes qsub.

PBS's hooks do not see a job's script. This hands to the daemon what the script runs (its outline,
the builds of its programs, the user's choices file): over its socket, and where PBS's hook asks
another daemon, in a file of the user's home that the user alone may read. Everybody sees a job's
variables, so nothing of it goes there: `-v` gets ADVISOR_QSUB, a random key, and the ADVISOR_
settings of the environment, by name. A `-v` replaces the one that the server gives every job
(`default_qsub_arguments`), so what stands in that one goes along.
Everything else is qsub's own: this process becomes the next qsub of PATH, so options, prompts,
signals and exit codes are what they were. If anything goes wrong, qsub runs as it was called.
Python 3.6 to 3.13 alone.
"""

import os
import re
import sys

try:  # without the enumerations around it, which take a millisecond
    import _signal as signal
except ImportError:
    import signal

QSUB = ""
"""PBS's own qsub, where none comes after this file in PATH. Written by `advisor hook install`."""
SOCKET = "/run/advisor/advisor.sock"
LAUNCHERS = "aprun ibrun jsrun mpiexec mpiexec.hydra mpiexec.mpich mpiexec.openmpi mpiexec_mpt mpirun mpirun.mpich mpirun.openmpi orterun prterun prun srun".split()  # noqa: E501, SIM905
SKIP = """
: [ [[ . case cd chmod conda cp date declare do done echo elif else env esac exit export false fi
for hostname if ln local ls mkdir ml module mv printf pwd readonly rm scontrol set shift sleep
source spack test then touch trap true ulimit unset wait while cat
""".split()  # noqa: SIM905
FRONT = ("!", "then", "do", "else", "time", "exec", "nohup", "command", "stdbuf", "setsid")
CLIENT, PREPARED = "ADVISOR_QSUB", "ADVISOR_QSUB_PREPARED"
FOLDER = ".cache/advisor/qsub"  # in the user's home; the daemon looks there, too
# How long the daemon is waited for, and not asked again once it hung; how old the server's answer
# and a text that nobody took may become, and how many of these there may be.
WAIT_S, HUNG_S, SERVER_S, LASTS_S, MOST_FILES = 0.25, 30, 60, 600, 64
PASSED = ("ADVISOR",)
OFF = ("off",)
FLAGS, VALUED = "fhIVXz", "aAcCejJklmMNopPqrRSuvW"
MAX_SCRIPT, MAX_EXCERPT, MAX_CHOICES, MAX_VALUE = 1 << 20, 4000, 4000, 32768  # characters
SECRET = re.compile(r"^((?:export\s+)?[A-Za-z_]\w*)=(?:'[^']*'|\"[^\"$`]*\"|[^\s;&|$`'\"]*)$")
ASSIGNMENT = re.compile(r"(?:export|declare|readonly|local)?\s*([A-Za-z_]\w*)=")
VARIABLE = re.compile(r"\$\{?(\w+)")
HERE = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
MOVES = re.compile(r"(?:^|[;&|(\s])(?:cd|pushd)(?:\s+([^;&|)]*))?")
MAX_OUTLINE, MAX_SIZES, MAX_PROGRAMS, HEAD, MAX_NOTES = 40000, 20, 5, 65536, 65536  # bytes: HEAD
LAUNCH = re.compile(r"(?:^|[\s;&|(/])(?:" + "|".join(map(re.escape, LAUNCHERS)) + r")(?=\s|$)")


class Kept(Exception):  # noqa: N818
    """Why nothing can be added to `-v`."""


def main(argv):
    """Become the next qsub, with more in `-v` where that can be."""
    words = argv[1:]
    program = next_qsub()
    try:
        if came_again():
            program = QSUB or program
        else:
            for name in (CLIENT, "ADVISOR_DECISION"):
                os.environ.pop(name, None)  # of the job this one is submitted from
            words = prepared(words)
            if QSUB and os.path.realpath(program) != os.path.realpath(QSUB):
                os.environ[PREPARED] = str(int(now()))
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        if os.environ.get("ADVISOR_DEBUG"):
            sys.stderr.write(f"advisor: qsub as it was called: {problem!r}\n")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and exec would keep so
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, ["qsub", *words])
    except OSError as error:
        sys.stderr.write(f"qsub: {program}: {error.strerror}\n")
        return 127


def now():
    """Return the time in seconds since the epoch."""
    import time

    return time.time()


def next_qsub():
    """Return the qsub that comes after this file in PATH: a site's own program may be there."""
    ours, past_ours = os.path.realpath(__file__), False
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", "qsub")
        if os.path.realpath(path) == ours:
            past_ours = True
        elif past_ours and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return QSUB or "/opt/pbs/bin/qsub"


def came_again():
    """Tell whether a site's qsub, which this one became, has called this one once more."""
    prepared_s = os.environ.pop(PREPARED, "")
    # Only soon after: with -V it goes into the job, whose own calls of qsub are others.
    return prepared_s.isdigit() and 0 <= now() - int(prepared_s) < 60


def prepared(words):
    """Return qsub's words with the advisor's variables in `-v`; raises for what it cannot tell."""
    options, end = read_options(words)
    if "I" in options or end is None:
        return words
    sizes = sorted(n for n in os.environ if re.fullmatch(r"ADVISOR_SIZE_\w+", n))[:MAX_SIZES]
    names = [name for name in (*PASSED, *sizes) if os.environ.get(name)]
    off = os.environ.get("ADVISOR", "").lower() in OFF
    rest = words[end:]
    text = b"" if rest[:1] == ["--"] else script_text(rest)
    lines = [] if text is None else text.decode("utf-8", "replace").splitlines()
    option_lines = directives(lines, prefix_of(options))
    value = "" if text is None or off else client(text, option_lines, lines)
    if value and not off and opted_out(lines):
        names, value = [n for n in names if n != "ADVISOR"] + ["ADVISOR=off"], ""
    if not names and not value:
        return words
    variable_list = options.get("v")
    if variable_list is None:  # what the script's own lines say goes behind the command line
        for line in option_lines:
            variable_list = read_options(line)[0].get("v", variable_list)
    if variable_list is None:
        try:
            variable_list = variables_of_all_jobs(options.get("q", "").partition("@")[2])
        except Kept as why:
            if names:
                listed = ", ".join(name.partition("=")[0] for name in names)
                sys.stderr.write(f"advisor: {listed} not passed on: {why}; use qsub -v\n")
            return words
    have = set(re.findall(r"(?:^|,)\s*(\w+)", variable_list or ""))
    added = [name for name in names if name.partition("=")[0] not in have]
    if value and CLIENT not in have:
        os.environ[CLIENT] = hand_over(value)
        added += [CLIENT] if os.environ[CLIENT] else []
    value = ",".join(([variable_list] if variable_list else []) + added)
    return [*words[:end], "-v", value, *rest] if added else words


def opted_out(lines):
    """Tell whether a line of the script itself says off: that does not depend on a daemon."""
    directive_words = (
        line[len("#ADVISOR") :].split() for line in lines if line.startswith("#ADVISOR")
    )
    return any(word.lower() in OFF for words in directive_words for word in words)


# -- what goes to the daemon, past PBS ---------------------------------------------------------


def hand_over(value):
    """Leave a text where the daemon finds it; return the key to it, "" where that cannot be."""
    import binascii

    key = binascii.hexlify(os.urandom(16)).decode("ascii")
    return key if send_text(key, value) or leave_text(key, value) else ""


def send_text(key, value):
    """Send a text to the daemon of this host; True if it is the one that PBS's hook asks."""
    path = os.environ.get("ADVISOR_SOCKET") or SOCKET
    if not os.path.exists(path) or read_note("daemon", HUNG_S) is not None:
        return False
    try:
        import _socket as socket
    except ImportError:
        import socket
    line = f'{{"v":1,"op":"script","key":"{key}","client":"{value}"}}\n'.encode("ascii")
    answer, until = b"", now() + WAIT_S
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(WAIT_S)
        connection.connect(path)
        while line:
            line = line[connection.send(line) :]
            connection.settimeout(max(0.001, until - now()))
        while not answer.endswith(b"\n") and len(answer) < 4096:
            piece = connection.recv(4096)
            if not piece:
                break
            answer += piece
            connection.settimeout(max(0.001, until - now()))
    except OSError as error:
        if error.errno is None or isinstance(error, BlockingIOError):  # its time is over
            try:
                note("daemon", "")
            except OSError:
                return False
        return False
    finally:
        connection.close()
    return b'"asked":true' in answer


def leave_text(key, value):
    """Write a text into a file that the user alone may read; tell whether it is there."""
    try:
        folder = own_folder()
        path = os.path.join(folder, key)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(number, value.encode("ascii"))
            written_s = os.fstat(number).st_mtime  # by the clock of the file system
        finally:
            os.close(number)
        tidy(folder, written_s)
    except OSError:
        return False
    return True


def tidy(folder, written_s):
    """Remove what no daemon has taken: what is old, and of the rest all but the newest."""
    ages = []
    for name in os.listdir(folder):
        if re.fullmatch("[0-9a-f]{32}", name):
            path = os.path.join(folder, name)
            try:
                ages.append((written_s - os.lstat(path).st_mtime, path))
            except OSError:
                pass
    for number, (age, path) in enumerate(sorted(ages)):
        if age > LASTS_S or number >= MOST_FILES:
            try:
                os.unlink(path)
            except OSError:
                pass


def own_folder():
    """Return the user's folder for this, which others cannot enter. Raises OSError."""
    import pwd

    try:
        home = pwd.getpwuid(os.getuid()).pw_dir  # where the daemon looks, whatever HOME says
    except KeyError:
        raise OSError("nobody has this uid") from None
    folder = os.path.join(home, FOLDER)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        status = os.lstat(folder)  # a folder, no link, and closed to everybody else
        if status.st_uid != os.getuid() or status.st_mode & 0o170077 != 0o040000:
            raise OSError(f"{folder} is not the user's alone") from None
    return folder


def read_note(name, lasts_s):
    """Return what was noted less than so many seconds ago, None for nothing."""
    try:
        number = os.open(os.path.join(own_folder(), name), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(number) as file:
            noted_s, _, text = file.read(65536).partition(" ")
        return text if 0 <= now() - int(noted_s) < lasts_s else None
    except (OSError, ValueError):
        return None


def note(name, text):
    """Note something, and when. Raises OSError."""
    path = os.path.join(own_folder(), name)
    partial = f"{path}.{os.getpid()}"
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{int(now())} {text}")
    os.rename(partial, path)


# -- the server's own -v, which one on the command line replaces -------------------------------


def variables_of_all_jobs(server):
    """Return the `-v` in the server's `default_qsub_arguments`, None for none. Raises Kept.

    The server is asked once a minute: each question takes a privileged port of this host.
    """
    import zlib

    places = [os.environ.get(n, "") for n in ("PBS_SERVER", "PBS_DEFAULT", "PBS_CONF_FILE")]
    name = f"server-{zlib.crc32(repr([server, *places]).encode()):08x}"
    text = read_note(name, SERVER_S)
    if text is None:
        text = default_arguments(server)
        try:
            note(name, text)
        except OSError as error:
            raise Kept(f"{FOLDER} in your home cannot be written ({error})") from None
    if text == "?":
        raise Kept("the server does not say what it gives every job")
    options, end = read_options(split_words(text))
    if end != len(split_words(text)) or "C" in options:
        raise Kept("the server's default_qsub_arguments are not understood")
    return options.get("v")


def default_arguments(server):
    """Return the server's `default_qsub_arguments`, "?" where it does not answer."""
    import subprocess
    import tempfile

    paths = [os.path.join(p, "qstat") for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    paths.append(os.path.join(os.path.dirname(QSUB or "/opt/pbs/bin/qsub"), "qstat"))
    words = [next((p for p in paths if os.access(p, os.X_OK)), paths[-1]), "-B", "-f"]
    try:
        with tempfile.TemporaryFile() as file:  # a pipe would be held by qstat's own children
            subprocess.run(
                [*words, *([server] if server else [])],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                timeout=2,
                check=True,
            )
            file.seek(0)
            answer = file.read()
    except (OSError, subprocess.SubprocessError):
        return "?"
    lines = answer.decode("utf-8", "replace").replace("\n\t", "")  # long ones are folded
    match = re.search(r"(?m)^ +default_qsub_arguments = (.*)$", lines)
    return match.group(1) if match else "" if re.search(r"(?m)^Server", lines) else "?"


# -- qsub's own options ------------------------------------------------------------------------


def read_options(words):
    """Return the options by letter, the last of each, and where the rest begins.

    None for what is no option of qsub's: `--version`, or a mistake that qsub has to tell.
    """
    options, position = {}, 0
    while position < len(words):
        word = words[position]
        if word in ("--", "-") or not word.startswith("-"):
            return options, position
        position += 1
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in FLAGS:
                options[letter] = ""
            elif letter in VALUED and (letters or position < len(words)):
                options[letter] = letters or words[position]
                position += not letters
                if letter == "l":
                    options.setdefault("all l", []).append(options["l"])
                break
            else:
                return options, None
    return options, position


def prefix_of(options):
    """Return what the script's lines of options begin with; none where `-C ''` says so."""
    return options.get("C", os.environ.get("PBS_DPREFIX", "#PBS"))


def script_text(rest):
    """Return the script; None where it is not read here. One of stdin is put back for qsub."""
    import stat

    if rest and rest[0] != "-":
        if not stat.S_ISREG(os.stat(rest[0]).st_mode):
            return None
        with open(rest[0], "rb") as file:
            return file.read(MAX_SCRIPT)
    if os.isatty(0):
        return None
    pieces = [b""]
    try:
        while len(pieces) == 1 or pieces[-1]:
            pieces.append(os.read(0, 1 << 16))
    finally:
        give_back(b"".join(pieces))
    return b"".join(pieces)[:MAX_SCRIPT]


def give_back(text):
    """Make a script that was read the standard input again."""
    try:
        # Python has it from 3.8 on.
        if hasattr(os, "memfd_create"):
            number = os.memfd_create("script", 0)
        else:
            import tempfile

            # A second number, as the file object closes its own.
            number = os.dup(tempfile.TemporaryFile().fileno())  # noqa: SIM115
        remainder = memoryview(text)
        while remainder:
            remainder = remainder[os.write(number, remainder) :]
        os.lseek(number, 0, os.SEEK_SET)
    except OSError:  # no room: a child writes it as qsub reads
        number, write_end = os.pipe()
        if os.fork() == 0:
            try:
                os.close(number)
                with os.fdopen(write_end, "wb") as pipe:
                    pipe.write(text)
            finally:  # a qsub that reads no more of it: this is none itself
                os._exit(0)
        os.close(write_end)
    os.dup2(number, 0)
    os.close(number)


def directives(lines, prefix):
    """Return the words of each line of options before the script's first command."""
    directive_list = []
    if not prefix:
        return directive_list
    lines = iter(lines)
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(prefix):
            while stripped.endswith("\\"):
                stripped = stripped[:-1] + next(lines, "").strip()
            directive_list.append(split_words(stripped[len(prefix) :]))
        elif stripped and not stripped.startswith("#"):
            break
    return directive_list


def split_words(text):
    """Split a line of options as qsub does: quotes group, a backslash takes the next as it is."""
    words, word, quote, position = [], None, "", 0
    while position < len(text):
        c = text[position]
        position += 1
        if quote:
            quote, word = ("", word) if c == quote else (quote, word + c)
        elif c in "\"'":
            quote, word = c, word or ""
        elif c == "\\" and position < len(text):
            word, position = (word or "") + text[position], position + 1
        elif c.isspace():
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + c
    return words if word is None else [*words, word]


def client(text, options, lines):
    """Return what is passed on, packed into letters no shell and no PBS trips over."""
    import binascii
    import zlib

    head = []
    for words in options:
        head += ["#PBS -l " + value for value in read_options(words)[0].get("all l", [])]
    data = {"v": 1, "fingerprint": sha256(text).hexdigest()[:16], "script": ""}
    if text:  # whole where there is room: of a part nobody knows what else the script does
        script = outline(lines)
        data["whole"] = script is not None
        shown = "\n".join([*head, *(excerpt(lines) if script is None else script)])
        data["script"] = shown if data["whole"] else shown[:MAX_EXCERPT]
        data["programs"] = programs(excerpt(lines), lines)
    choices = choices_text()
    if choices:
        data["choices"] = choices
    # What is too long goes without one part more each time, the one that is missed least first.
    for key in ("", "programs", "whole", "choices", "script"):
        if data.pop(key, None) and key == "whole":
            data["script"] = "\n".join([*head, *excerpt(lines)])[:MAX_EXCERPT]
        packed = binascii.b2a_base64(zlib.compress(as_json(data).encode("ascii"), 9))
        value = packed.decode("ascii").replace("+", "-").replace("/", "_").rstrip("=\n")
        if len(value) <= MAX_VALUE:
            return value
    return ""


def sha256(text):
    """Return the sum of a text. OpenSSL's takes 8 ms to load, Python's own none."""
    try:
        from _sha2 import sha256 as summed
    except ImportError:
        try:
            from _sha256 import sha256 as summed
        except ImportError:
            from hashlib import sha256 as summed
    return summed(text)


def as_json(value):
    """Return texts, numbers and mappings of them as JSON; loading json takes 2 ms."""
    try:
        from _json import encode_basestring_ascii as quoted
    except ImportError:
        from json import dumps

        return dumps(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(k)}:{as_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower()  # True, False, 7


def programs(telling, lines):
    """Return path, size, time of change and build of the files that the telling lines run, by the
    word they are run by. Names without a folder are left out: the job has a PATH of its own."""
    variables, by_word = {}, {}
    home = os.path.expanduser("~")
    moves = [m.group(1) or "" for _, line in logical(lines) for m in MOVES.finditer(line)]
    to_workdir = [m for m in moves if m.strip("\"' {}$") == "PBS_O_WORKDIR"]
    folder = (os.getcwd() if to_workdir else home) if len(to_workdir) == len(moves) else None
    for line in telling:
        for piece in re.split("[;&|()]+", line):
            for word in split_words(piece):
                name, equals, value = word.partition("=")
                if equals and re.match(r"\w+$", name):
                    variables[name] = value
                word = replaced(word, variables)
                folder_variables = {"HOME": home, "PBS_O_WORKDIR": os.getcwd()}
                path = os.path.expanduser(replaced(word, folder_variables))
                if "/" not in path or "$" in path or word.startswith("-") or word in by_word:
                    continue
                if not path.startswith("/") and folder is None:
                    continue
                facts = facts_of(os.path.normpath(os.path.join(folder or "/", path)))
                if facts and len(by_word) < MAX_PROGRAMS:
                    by_word[word] = facts
    return by_word


def replaced(word, variables):
    """Return a word with its variables replaced, as far as they are known."""
    return re.sub(
        r"\$(?:\{(\w+)\}|(\w+))",
        lambda m: variables.get(m.group(1) or m.group(2), m.group(0)),
        word,
    )


def facts_of(path):
    """Return what advisor/core/program.py says of a file that may be run, None for others."""
    import stat

    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not os.access(path, os.X_OK):
                return None
            build = build_of(file, status.st_size)
    except (OSError, ValueError):
        return None
    return {"path": path, "size": status.st_size, "mtime": int(status.st_mtime), "build": build}


def build_of(file, size):
    """Return the GNU build id of a 64-bit little-endian ELF file, a sum of others' first bytes."""
    import struct
    import zlib

    head = file.read(HEAD)
    try:
        if head[:6] == b"\x7fELF\x02\x01":
            start = struct.unpack_from("<Q", head, 32)[0]
            length, count = struct.unpack_from("<HH", head, 54)
            for header_offset in range(start, start + length * min(count, 64), length or 1):
                if struct.unpack_from("<I", head, header_offset)[0] == 4:  # PT_NOTE
                    file.seek(struct.unpack_from("<Q", head, header_offset + 8)[0])
                    room = min(struct.unpack_from("<Q", head, header_offset + 32)[0], MAX_NOTES)
                    build = build_id(file.read(room))
                    if build:
                        return build
    except (struct.error, OverflowError):
        pass
    return f"adler:{zlib.adler32(head) & 0xFFFFFFFF:08x}:{size}"


def build_id(notes):
    """Return the build id among an ELF file's notes, "" where there is none."""
    import struct

    offset = 0
    while offset + 12 <= len(notes):
        name, size, kind = struct.unpack_from("<III", notes, offset)
        start = offset + 12 + (name + 3) // 4 * 4
        if kind == 3 and name == 4 and notes[offset + 12 : offset + 16] == b"GNU\0":
            identity = notes[start : start + size]
            return identity.hex() if 4 <= len(identity) == size <= 64 else ""
        offset = start + (size + 3) // 4 * 4
    return ""


def choices_text():
    """Return the user's choices file."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    if not root.startswith("/"):
        root = os.path.join(os.path.expanduser("~"), ".config")
    try:
        with open(os.path.join(root, "advisor", "choices.json")) as file:
            text = file.read(MAX_CHOICES + 1)
    except (OSError, ValueError):
        return ""
    return text if len(text) <= MAX_CHOICES else ""


def excerpt(lines):
    """Return the script's lines that tell what it runs: the advisor's own, those with a launcher
    and the last commands, those that set threads, and the assignments these need."""
    texts = dict(logical(lines))
    return own_lines(lines) + [texts[n] for n in sorted(telling(texts))]


def outline(lines):
    """Return all that a script does, None where that is too long or cannot be known.

    Comments and here-documents are left out, and so are the values of variables that do not tell:
    they may be secrets, and a job's variables can be seen.
    """
    text = "\n".join(lines)
    if len(text) > MAX_OUTLINE or ("<<" in text and ("$(" in text or "`" in text)):
        return None
    texts = dict(logical(lines))
    shown = telling(texts)
    return own_lines(lines) + [
        line if n in shown else SECRET.sub(r"\1=_", line) for n, line in sorted(texts.items())
    ]


def own_lines(lines):
    """Return the advisor's own lines."""
    return [line[:1000] for line in lines if line.startswith("#ADVISOR")]


def telling(texts):
    """Return the numbers of the lines that tell what a script runs."""
    numbers = {n for n, line in texts.items() if "_NUM_THREADS" in line}
    numbers.update([n for n, line in texts.items() if LAUNCH.search(line)][:5])
    pieces = {n: re.split("[;&|()]+", line) for n, line in texts.items()}
    numbers.update([n for n in texts if any(map(is_command, pieces[n]))][-3:])
    assigned = {}
    for n, line in texts.items():
        match = ASSIGNMENT.match(line)
        if match:
            assigned.setdefault(match.group(1), []).append(n)
    todo = list(numbers)
    while todo:
        for name in VARIABLE.findall(texts[todo.pop()]):
            new = set(assigned.get(name, ())) - numbers
            numbers |= new
            todo += new
    return numbers


def is_command(text):
    """Tell whether a piece of a line may run a program of the user's."""
    words = text.split()
    while words and (words[0] in FRONT or re.match(r"[A-Za-z_]\w*=", words[0])):
        words.pop(0)
    return bool(words) and words[0] not in SKIP


def logical(lines):
    """Yield (number, line): continued lines joined, the text of here-documents left out."""
    end = None
    joined = re.sub(r"\\\r?\n", " ", "\n".join([*lines, ""]))
    for number, line in enumerate(joined.splitlines()):
        line = line.strip()
        if end is not None:
            end = None if line == end else end
            continue
        here_document = HERE.search(line) if "<<" in line and "<<<" not in line else None
        if here_document:
            end, line = here_document.group(2), HERE.sub("", line)
        if line and not line.startswith("#"):
            yield number, line[:1000]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
