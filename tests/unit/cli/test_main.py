"""The root command, over nouns made up here: what it shows and imports, and the exit code of every ending."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import rich_click as click

import tailrace
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.main import NOUNS, build_root, main, run
from tailrace.model import ConfigError, Offset, OffsetOutOfRange, StorageError, TailraceError

HELP = "Do what the test says."
Act = Callable[[], object]


def run_noun(monkeypatch: pytest.MonkeyPatch, act: Act, *args: str) -> int:
    """Run `tailrace thing ARGS`, where thing has one verb that calls `act`."""

    @click.group(help=HELP)
    def thing() -> None:
        pass

    @thing.command()
    @click.option("--count", type=int)
    def do(count: int | None) -> object:
        return act()

    module = ModuleType("nouns.thing")
    module.__dict__["command"] = thing
    monkeypatch.setitem(sys.modules, "nouns.thing", module)
    return run(build_root({"thing": HELP}, package="nouns"), args)


def current_context() -> click.RichContext:
    context = click.get_current_context()
    assert context is not None
    return context


def fail_with(error: BaseException) -> Act:
    def act() -> object:
        raise error

    return act


def test_help_lists_every_noun_and_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for noun, text in NOUNS.items():
        assert noun in shown
        assert text in shown
    assert "Examples:" in shown
    assert "tailrace log inspect" in shown


def test_every_noun_is_there_and_says_what_the_root_says_of_it() -> None:
    root = build_root(NOUNS)
    for noun, text in NOUNS.items():
        name, command, rest = root.resolve_command(click.Context(root), [noun, "rest"])
        assert (name, rest) == (noun, ["rest"])
        assert command is not None
        assert (command.help or "").splitlines()[0] == text


def test_help_imports_no_noun(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(build_root({"absent": "A noun without a module."}, package="nowhere"), ["--help"]) == 0
    assert "A noun without a module." in capsys.readouterr().out


def test_a_noun_that_is_run_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    assert run_noun(monkeypatch, lambda: ran.append("yes"), "thing", "do") == 0
    assert ran == ["yes"]


def test_help_of_a_noun_is_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_noun(monkeypatch, lambda: None, "thing", "-h") == 0
    shown = capsys.readouterr().out
    assert "tailrace thing" in shown
    assert "do" in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tailrace {tailrace.__version__}\n"


def test_a_number_that_a_command_returns_is_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_noun(monkeypatch, lambda: ExitCode.NOT_FOUND, "thing", "do") == 3


def test_ctx_exit_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_noun(monkeypatch, lambda: current_context().exit(5), "thing", "do") == 5


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TailraceError("went wrong"), 1),
        (StorageError("open", "/data", "Input/output error", hint="Replace the disk"), 1),
        (ConfigError("fsync = 'x' is not known"), 2),
        (OffsetOutOfRange(Offset(7), start=Offset(8), end=Offset(9)), 3),
        (FileNotFoundError(2, "No such file or directory", "/data"), 3),
        (CommandFailed("no partition 3"), 1),
        (CommandFailed("no partition 3", exit_code=ExitCode.NOT_FOUND), 3),
        (PermissionError(13, "Permission denied", "/data"), 4),
        (UnicodeEncodeError("utf-8", "t\udcff", 1, 2, "surrogates not allowed"), 2),
        (TimeoutError(), 5),
        (TimeoutError("no answer in 5 s"), 5),
        (OSError(28, "No space left on device"), 1),
        (click.ClickException("cannot"), 1),
        (TailraceError(), 1),
    ],
    ids=repr,
)
def test_a_failure_is_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    assert run_noun(monkeypatch, fail_with(error), "thing", "do") == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert len(shown.err) > len("error: \n")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TailraceError("first\nsecond\x1b[31m"), "error: first\\nsecond\\x1b[31m\n"),
        (
            FileNotFoundError(2, "No such file or directory", "/data"),
            "error: No such file or directory: /data\n",
        ),
        (OSError(28, "No space left on device"), "error: No space left on device\n"),
        (TimeoutError(), "error: timed out\n"),
        (click.UsageError("no number"), "error: no number. Try: tailrace thing do --help\n"),
        (click.UsageError("Delete it?"), "error: Delete it? Try: tailrace thing do --help\n"),
        (
            UnicodeEncodeError("utf-8", "t\udcff", 1, 2, "surrogates not allowed"),
            "error: 't\\udcff' is not UTF-8, and names are\n",
        ),
        (TailraceError(), "error: TailraceError\n"),
    ],
    ids=repr,
)
def test_what_a_failure_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    run_noun(monkeypatch, fail_with(error), "thing", "do")
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        (["lgo"], "No such command 'lgo'"),
        (["--nonsense"], "No such option"),
        (["thing", "undo"], "No such command 'undo'"),
        (["thing", "do", "--count", "many"], "many"),
        (["thing", "do", "extra"], "unexpected extra argument"),
    ],
    ids=repr,
)
def test_wrong_usage_names_the_cause_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], cause: str
) -> None:
    assert run_noun(monkeypatch, lambda: None, *args) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert cause in shown
    assert "Try: tailrace" in shown
    assert shown.count("\n") == 1


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run_noun(monkeypatch, fail_with(ZeroDivisionError()), "thing", "do")


def test_ctrl_c_ends_quietly_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_noun(monkeypatch, fail_with(KeyboardInterrupt()), "thing", "do") == 130
    assert capsys.readouterr().err.strip() == ""


def python(code: str, *, cwd: Path) -> subprocess.Popen[str]:
    """Another Python, with what this one imports from, and with stdout buffered as it is by default."""
    env = {**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])}
    env.pop("PYTHONUNBUFFERED", None)
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


RUN_FOREVER = """
    import asyncio, sys
    import rich_click as click
    from tailrace.cli.main import run

    async def wait_for_ever():
        print("waiting", flush=True)
        await asyncio.Event().wait()

    @click.command()
    def wait():
        asyncio.run(wait_for_ever())

    sys.exit(run(wait, []))
"""


def test_sigint_ends_a_waiting_process_with_130_and_no_traceback(tmp_path: Path) -> None:
    with python(RUN_FOREVER, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.strip() == ""


PRINT_MUCH = """
    import sys
    import rich_click as click
    from tailrace.cli.main import run

    @click.command()
    def talk():
        sys.stdin.readline()
        for number in range(100_000):
            print(number)

    sys.exit(run(talk, []))
"""


@pytest.mark.parametrize("lines", [1, 100_000], ids=["at the end", "while it writes"])
def test_a_reader_who_leaves_is_no_failure(tmp_path: Path, lines: int) -> None:
    with python(PRINT_MUCH.replace("100_000", str(lines)), cwd=tmp_path) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate("go\n", timeout=120)
    assert err == ""
    assert process.returncode == 0  # else `tailrace ... | head` ends a script that has `set -o pipefail`


BREAK_ANOTHER_PIPE = """
    import os, sys
    import rich_click as click
    from tailrace.cli.main import run

    @click.command()
    def talk():
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"lost")

    sys.exit(run(talk, []))
"""


def test_another_pipe_that_breaks_is_a_failure(tmp_path: Path) -> None:
    with python(BREAK_ANOTHER_PIPE, cwd=tmp_path) as process:
        _, err = process.communicate("", timeout=120)
    assert (process.returncode, err) == (1, "error: Broken pipe\n")


PRINT_A_WORD = """
    import os, sys
    {before}
    import rich_click as click
    from tailrace.cli.main import run
    from tailrace.cli.output import Column, Output

    @click.command()
    def talk():
        click.echo("日本")
        Output().rows([dict(word="日本")], columns=[Column("word")])

    sys.exit(run(talk, []))
"""


def test_closed_streams_are_no_failure(tmp_path: Path) -> None:
    closed = PRINT_A_WORD.replace("{before}", "sys.stdout = sys.stderr = None")
    with python(closed, cwd=tmp_path) as process:
        process.communicate(timeout=120)
    assert process.returncode == 0


def test_what_the_terminal_has_no_character_for_is_written_out(tmp_path: Path) -> None:
    western = PRINT_A_WORD.replace("{before}", "sys.stdout.reconfigure(encoding='latin-1', errors='strict')")
    with python(western, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.split() == [r"\u65e5\u672c", "word", r"\u65e5\u672c"]


def test_python_m_tailrace_is_tailrace(tmp_path: Path) -> None:
    code = """
        import runpy, sys
        sys.argv = ["tailrace", "--version"]
        runpy.run_module("tailrace", run_name="__main__")
    """
    with python(code, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, f"tailrace {tailrace.__version__}\n", "")


def test_importing_the_root_imports_none_of_the_engine(tmp_path: Path) -> None:
    code = """
        import sys
        import tailrace.cli.main
        heavy = {"asyncio", "rich", "tailrace.records", "tailrace.runtime", "tailrace.storage", "uvloop"}
        print(sorted(heavy & set(sys.modules)))
    """
    with python(code, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (out, err) == ("[]\n", "")


def test_a_command_warns_of_a_variable_without_an_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_PORT", "19092")
    assert run_noun(monkeypatch, lambda: 0, "thing", "do") == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("warning: environment TAILRACE_PORT has no effect: it is not a setting. Did ")
