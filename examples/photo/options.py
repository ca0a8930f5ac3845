"""The command line: what may be asked for, and a clear message for what may not."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

import attrs

from lardon.units import MiB, format_bytes, parse_size
from photo.features import ORB, SIFT, Detector
from photo.neighbour import DEFAULT_LIMIT_BYTES
from photo.timeline import FORMATS

SAMPLE_COUNT: Final = 24
SAMPLE_SIZE: Final = (6000, 4000)
SMALLEST_SAMPLE: Final = 96
LARGEST_SAMPLE: Final = 20_000
# Enough to keep every CPU of a desktop busy while others wait for the disk, and what a
# machine with 8 GiB can hold of photographs with 24 megapixels.
MOST_AT_ONCE: Final = 16

EXIT_STATUSES: Final = """\
exit statuses:
  0    every photograph that can be read was worked on; those that cannot are listed
  1    the work failed: no photograph can be read, the limit is too small, the disk is full
  2    an option, the folder or the output cannot be used, or a package is missing
  130  cancelled with Ctrl-C         143  cancelled with SIGTERM

Ctrl-C on a terminal pauses after the batch in hand and asks whether to resume or to cancel;
a second one cancels. Without a terminal the first one cancels. Either way the batch in hand
is finished, every file is whole, and report.json says how far the work came.
"""


@attrs.frozen(kw_only=True)
class Options:
    """What the user asked for."""

    folder: Path | None
    output: Path
    detector: Detector
    memory_limit_bytes: int | None
    neighbour: bool
    timeline: Path | None
    count: int | None
    size: tuple[int, int]
    max_batch: int

    @property
    def features_folder(self) -> Path:
        """Where the features go."""
        return self.output / "features"

    @property
    def matches_folder(self) -> Path:
        """Where the matches go."""
        return self.output / "matches"

    @property
    def report_file(self) -> Path:
        """Where the report goes."""
        return self.output / "report.json"


class OptionError(Exception):
    """An option that cannot be used, in words."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="photo_features.py",
        description="Find and match features in a folder of photographs, never with more of "
        "them in memory than the machine or --memory-limit has room for.",
        epilog=EXIT_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        help="photographs to work on; without it, sample photographs are made",
    )
    made.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        default=Path("photo_features_output"),
        help="where features, matches and report.json go (default: %(default)s)",
    )
    made.add_argument(
        "--sift", action="store_true", help="SIFT at up to 2000x1500 instead of ORB at 6000x4000"
    )
    made.add_argument(
        "--memory-limit",
        metavar="SIZE",
        type=_memory,
        help="never reserve more RAM than this, such as 2GiB",
    )
    made.add_argument(
        "--neighbour",
        action="store_true",
        help="start a process that takes half the memory for a while; --memory-limit (default: "
        f"{format_bytes(DEFAULT_LIMIT_BYTES)}) is then what both have together",
    )
    made.add_argument(
        "--timeline",
        metavar="FILE",
        type=_picture,
        help="draw memory and batches over time (.png, .svg or .pdf)",
    )
    made.add_argument(
        "--max-batch",
        metavar="N",
        type=_number,
        default=MOST_AT_ONCE,
        help="the most photographs to ask memory for at once (default: %(default)s)",
    )
    made.add_argument(
        "--count",
        metavar="N",
        type=_number,
        help=f"at most N photographs (default: all of FOLDER, or {SAMPLE_COUNT} samples)",
    )
    made.add_argument(
        "--size",
        metavar="WxH",
        type=_size,
        help="pixels of a sample photograph (default: {}x{})".format(*SAMPLE_SIZE),
    )
    return made


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Return the options; a wrong one ends the program with status 2 and a message."""
    given = parser().parse_args(arguments)
    try:
        if given.folder is not None and given.size is not None:
            _refuse("--size is for the sample photographs; it cannot go with FOLDER")
        _check_folders(given.folder, given.output, given.timeline)
        if given.timeline is not None and find_spec("matplotlib") is None:
            _refuse("--timeline needs matplotlib: pip install 'lardon[examples]'")
    except OptionError as error:
        parser().error(str(error))
    return Options(
        folder=given.folder,
        output=given.output,
        detector=SIFT if given.sift else ORB,
        memory_limit_bytes=given.memory_limit or (DEFAULT_LIMIT_BYTES if given.neighbour else None),
        neighbour=given.neighbour,
        timeline=given.timeline,
        count=given.count,
        size=given.size or SAMPLE_SIZE,
        max_batch=given.max_batch,
    )


def _check_folders(folder: Path | None, output: Path, timeline: Path | None) -> None:
    """Find out now, not after the work, what cannot be read or written."""
    if folder is not None and not folder.is_dir():
        _refuse(f"{folder} is not a folder" if folder.exists() else f"{folder} does not exist")
    if output.exists() and not output.is_dir():
        _refuse(f"--output: {output} is not a folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        _refuse(f"--output: cannot write to {output}: {error.strerror}")
    if timeline is not None and not timeline.parent.is_dir():
        _refuse(f"--timeline: the folder {timeline.parent} does not exist")


def _refuse(message: str) -> NoReturn:
    raise OptionError(message)


def _memory(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if size < MiB:
        message = f"{text!r} is under 1 MiB; did you leave out the unit?"
        raise argparse.ArgumentTypeError(message)
    return size


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r} is not a whole number of at least 1"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _size(text: str) -> tuple[int, int]:
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdecimal() and height.isdecimal()):
        message = f"{text!r} is not a size such as 1200x800"
        raise argparse.ArgumentTypeError(message)
    if not all(SMALLEST_SAMPLE <= side <= LARGEST_SAMPLE for side in (int(width), int(height))):
        message = f"{text!r}: each side must have {SMALLEST_SAMPLE} to {LARGEST_SAMPLE} pixels"
        raise argparse.ArgumentTypeError(message)
    return int(width), int(height)


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in FORMATS:
        message = f"{text!r} does not end in {', '.join(sorted(FORMATS))}"
        raise argparse.ArgumentTypeError(message)
    return path
