"""What a person at a terminal sees while a replay runs, and what nobody sees where nobody looks."""

import os
import pty
import re
import select
import time

from pipeline import resources
from tests.replay import servecast

# The bar is drawn ten times a second: a little rest after each batch, so that there is something to draw.
SLOW = """
import time
from pipeline.replay import source
source.BATCH_ROWS = 500
real = source.Source.next
def next_batch(self):
    time.sleep(0.15)
    return real(self)
source.Source.next = next_batch
"""


def sample():
    return resources.folder("traces") / "sample.parquet"


class Terminal:
    """A command whose stderr is a terminal of 120 columns."""

    def __init__(self, *arguments, before=SLOW, **environment):
        ours, theirs = pty.openpty()
        from tests.shared import CHECKOUT

        env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "PYTHONPATH": str(CHECKOUT)} | environment
        self.process = servecast.start(
            *arguments, before=before, stdin=theirs, stderr=theirs, start_new_session=True, env=env
        )
        os.close(theirs)
        self.ours, self.shown = ours, ""

    def read(self, until=None, seconds=400):
        """Read until a pattern was shown, or to the end; return all that was shown, without escape sequences."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (until and re.search(until, self.plain)):
            ready, _, _ = select.select([self.ours], [], [], 0.2)
            if ready:
                try:
                    data = os.read(self.ours, 65536)
                except OSError:  # the other side is closed
                    break
                self.shown += data.decode(errors="replace")
            elif self.process.poll() is not None:
                break
        return self.plain

    @property
    def plain(self):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)

    def end(self):
        self.read()
        out, _ = self.process.communicate(timeout=300)
        os.close(self.ours)
        return self.process.returncode, out


def test_progress_in_a_terminal(tmp_path):
    terminal = Terminal("replay", sample(), "-o", tmp_path / "runs", "--where", "arrival_us < 1200000000", "--no-bands")
    status, out = terminal.end()
    assert status == 0, terminal.plain
    frames = re.findall(
        r"(\d+) % ([\d,]+) requests, (\d+:\d\d:\d\d) simulated, ([\d,]+)x real time (\d+:\d\d:\d\d) left (\S+)",
        terminal.plain,
    )
    assert len(frames) > 3
    done = [int(requests.replace(",", "")) for _, requests, *_ in frames]
    clock = [text for _, _, text, *_ in frames]
    assert done == sorted(done)
    assert clock == sorted(clock)
    assert done[-1] > 100
    assert any(re.fullmatch(r"\d+:\d\d:\d\d", left) for *_, left in frames)  # an estimate, not only -:--:--
    assert "simulated" not in out
    assert "compiling" not in terminal.plain


def test_ctrl_c_in_a_terminal(tmp_path):
    terminal = Terminal(
        "replay",
        sample(),
        "-o",
        tmp_path / "runs",
        before=f"{SLOW}\nimport fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)",
    )
    terminal.read(until=r"\d requests")
    os.write(terminal.ours, b"\x03")
    status, out = terminal.end()
    assert (status, out) == (130, "")
    assert "servecast: interrupted; nothing half-written was kept" in terminal.plain
    assert "Traceback" not in terminal.plain
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_first_compilation_is_announced(tmp_path):
    trace = servecast.trace(tmp_path / "t.parquet", "0us 32>2")
    options = {"before": "", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    terminal = Terminal("replay", trace, "-o", tmp_path / "runs", *servecast.settings(), **options)
    assert "compiling the engine, once (under a minute) ..." in terminal.read(until="compiling")
    os.killpg(terminal.process.pid, 2)  # no need to wait for it
    assert terminal.end()[0] == 130
    assert list((tmp_path / "runs").iterdir()) == []


def test_silence_where_nobody_looks(tmp_path):
    process = servecast.start("replay", sample(), "-o", tmp_path / "runs", "--where", "arrival_us < 60000000")
    status, _, err = servecast.finish(process)
    assert (status, err) == (0, "")


def test_the_bar_does_not_show_in_the_results(tmp_path):
    where = ["--where", "arrival_us < 60000000", "--no-bands"]
    terminal = Terminal("replay", sample(), "-o", tmp_path / "seen", *where)
    assert terminal.end()[0] == 0
    assert servecast.run("replay", sample(), "-o", tmp_path / "unseen", *where).exit_code == 0
    (seen,), (unseen,) = ((tmp_path / name).iterdir() for name in ("seen", "unseen"))
    assert servecast.content(seen) == servecast.content(unseen)
