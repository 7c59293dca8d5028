"""The progress line: one line on a terminal, plain lines at most one a second elsewhere."""

from __future__ import annotations

import io
import math
import os
import pty
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasp_local.events import Progress
from wasp_local.report.progress import ProgressLine, plain_line, terminal_line

TOTAL = 40_000


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and what someone in front of it would see."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines = []
        for text in self.getvalue().split("\n"):
            shown: list[str] = []
            for part in text.split("\r"):
                shown[: len(part)] = part
            lines.append("".join(shown).rstrip())
        return lines


def progress(samples: int = 17_300, **changed: object) -> Progress:
    whole = Progress(2.0, samples, TOTAL, samples // 64, samples / 4000, 0.412, 0.951, 0.98, 9120.0)
    return whole._replace(**changed)  # type: ignore[arg-type]


@pytest.fixture
def clock():
    return Clock()


def test_a_log_gets_at_most_one_line_a_second(clock):
    log = io.StringIO()
    line = ProgressLine(TOTAL, log, clock=clock)
    for step in range(100):  # 0.05 s apart, 5 s in all
        line.update(progress(step * 64))
        clock.now += 0.05
    line.close()
    assert len(log.getvalue().splitlines()) == 5


def test_a_log_has_no_carriage_return_or_escape_code(clock):
    log = io.StringIO()
    line = ProgressLine(TOTAL, log, clock=clock)
    line.update(progress())
    line.write("worker 1: hello")
    clock.now += 2
    line.update(progress(TOTAL))
    line.close()
    assert not re.search(r"[^\n -~]", log.getvalue())
    assert log.getvalue().splitlines()[1] == "worker 1: hello"


def test_a_log_ends_with_the_last_progress_if_a_second_has_passed(clock):
    log = io.StringIO()
    line = ProgressLine(TOTAL, log, clock=clock)
    line.update(progress(64))
    clock.now += 0.5
    line.update(progress(TOTAL))
    clock.now += 0.6
    line.close()
    assert log.getvalue().splitlines()[-1].startswith("40,000 of 40,000 samples (100 %)")


def test_a_plain_line_says_everything_in_words():
    assert plain_line(progress(), TOTAL) == (
        "17,300 of 40,000 samples (43 %), epoch 4.3, 9,120 samples/s, loss 0.412, "
        "test accuracy 95.1 %, mean staleness 0.98"
    )


def test_before_the_first_push_and_evaluation_loss_and_accuracy_are_left_out():
    text = plain_line(progress(0, loss=None, accuracy=None, samples_per_second=0.0, staleness=0.0), TOTAL)
    assert text == "0 of 40,000 samples (0 %), epoch 0.0, 0 samples/s, mean staleness 0.00"


def test_a_terminal_has_one_line_drawn_over_again(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    line = ProgressLine(TOTAL, terminal, clock=clock)
    for step in range(0, TOTAL + 1, 4000):
        line.update(progress(step))
        clock.now += 1
    line.close()
    shown, below = terminal.screen()
    assert below == ""
    assert shown.startswith("100 %")


def test_a_terminal_always_ends_with_the_last_progress(clock):
    terminal = Terminal()
    line = ProgressLine(TOTAL, terminal, clock=clock)
    line.update(progress(64))
    line.update(progress(TOTAL))  # too soon to be drawn
    assert "40,000/40,000" not in terminal.getvalue()
    line.close()
    assert "40,000/40,000" in terminal.screen()[0]


def test_what_a_worker_prints_stands_above_the_line_and_leaves_no_rest_of_it(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    line = ProgressLine(TOTAL, terminal, clock=clock)
    line.update(progress())
    line.write("[worker 1] hello")
    line.write("[worker 0] hello\n")
    line.close()
    first, second, bar, _ = terminal.screen()
    assert (first, second) == ("[worker 1] hello", "[worker 0] hello")
    assert bar.startswith(" 43 %")


def test_a_shorter_line_leaves_no_rest_of_a_longer_one(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    terminal = Terminal()
    line = ProgressLine(TOTAL, terminal, clock=clock)
    line.update(progress())
    monkeypatch.setenv("COLUMNS", "40")
    clock.now += 1
    line.update(progress(20_000))
    line.close()
    assert len(terminal.getvalue().split("\r")[-1].rstrip()) <= 39


def test_quiet_shows_nothing_but_what_is_written(clock):
    for stream in (io.StringIO(), Terminal()):
        line = ProgressLine(TOTAL, stream, quiet=True, clock=clock)
        line.update(progress())
        line.say("LeNet-5, 2 workers")
        line.write("[worker 0] the user's own words")
        line.close()
        assert stream.getvalue() == "[worker 0] the user's own words\n"


def test_say_prints_when_not_quiet(clock):
    log = io.StringIO()
    ProgressLine(TOTAL, log, clock=clock).say("LeNet-5, 2 workers")
    assert log.getvalue() == "LeNet-5, 2 workers\n"


def test_output_may_go_to_another_stream(clock):
    terminal, out = Terminal(), io.StringIO()
    line = ProgressLine(TOTAL, terminal, clock=clock)
    line.update(progress())
    line.write("result", out)
    assert out.getvalue() == "result\n"
    assert "result" not in terminal.getvalue()


def test_letters_that_the_stream_lacks_are_escaped(clock):
    raw = io.BytesIO()
    line = ProgressLine(TOTAL, io.TextIOWrapper(raw, encoding="ascii"), clock=clock)
    line.write("[worker 0] 你好 é")
    assert raw.getvalue() == b"[worker 0] \\u4f60\\u597d \\xe9\n"


def test_threads_that_write_at_once_mix_no_lines(clock):
    terminal = Terminal()
    line = ProgressLine(TOTAL, terminal, clock=clock)
    line.update(progress())
    threads = [
        threading.Thread(target=lambda n=n: [line.write(f"[worker {n}] " + "x" * 50) for _ in range(50)])
        for n in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    line.close()
    *written, _bar, _end = terminal.screen()
    assert len(written) == 200
    assert all(re.fullmatch(r"\[worker \d\] x{50}", each) for each in written)


def test_a_real_terminal_gets_its_own_width(clock):
    leader, follower = pty.openpty()
    try:
        with open(follower, "w", closefd=False) as stream:
            assert stream.isatty()
            line = ProgressLine(TOTAL, stream, clock=clock)  # a fresh one has no size: the usual 80 columns
            line.update(progress())
            line.close()
        assert b"17,300/40,000" in os.read(leader, 1000)
    finally:
        os.close(leader)
        os.close(follower)


@given(
    st.integers(0, 10**9),
    st.integers(1, 10**9),
    st.none() | st.floats(),
    st.none() | st.floats(0, 1) | st.just(math.nan),
    st.floats(),
    st.floats(),
    st.integers(1, 200),
)
def test_a_line_fits_its_terminal_and_shows_no_nan_or_none(samples, total, loss, accuracy, tau, speed, width):
    at = Progress(2.0, samples, total, samples, 1.0, loss, accuracy, tau, speed)
    for text in (terminal_line(at, total, width), plain_line(at, total)):
        assert not re.search(r"nan|none|\binf", text, re.IGNORECASE)
    assert len(terminal_line(at, total, width)) <= width


def test_eighty_columns_show_samples_speed_loss_accuracy_and_staleness():
    text = terminal_line(progress(), TOTAL, 79)
    for part in ("17,300/40,000", "9,120/s", "loss 0.412", "accuracy 95.1 %", "staleness 0.98"):
        assert part in text


def test_a_run_that_is_not_whole_does_not_read_100_per_cent():
    for line in (plain_line(progress(TOTAL - 1), TOTAL), terminal_line(progress(TOTAL - 1), TOTAL, 79)):
        assert "99 %" in line
        assert "100 %" not in line


def test_a_narrow_terminal_keeps_what_matters_most():
    assert terminal_line(progress(), TOTAL, 40) == " 43 % 17,300/40,000  loss 0.412"
    assert terminal_line(progress(loss=math.nan), TOTAL, 20) == " 43 % 17,300/40,000"
