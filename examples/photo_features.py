"""
From a folder of photographs to matched features: the first half of photogrammetry.

    python examples/photo_features.py                       # on 24 sample photographs
    python examples/photo_features.py FOLDER                # on your own
    python examples/photo_features.py --memory-limit 2GiB --timeline run.png
    python examples/photo_features.py --sift --output /data/survey
    python examples/photo_features.py --neighbour --timeline run.png

Three tasks go through one queue. *import* decodes every photograph in full, to see whether
it can be used. *features* finds corners in each: ORB at up to 6000 x 4000 pixels, or SIFT at
up to 2000 x 1500. *matches* compares each photograph with the next. Before each task, and
between its batches, the queue asks the governor how many may be in memory at once.

This file is what uses lardon: `fill` submits the tasks with their estimates, `in_batches`
does one of them, `watch` steers the queue. `photo/costs.py` has the figures that the
estimates are made of. The rest of `photo/` reads and matches pictures, and shows the run.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

try:
    import cv2
    from PIL import Image

    from lardon import (
        Decision,
        Governor,
        Policy,
        ResourceEstimate,
        SystemProbe,
        Task,
        TaskContext,
        TaskQueue,
        TaskState,
    )
    from photo import samples
    from photo.costs import estimates
    from photo.display import Display, printable
    from photo.features import detect, match
    from photo.interrupts import Interrupts
    from photo.job import Extracted, Job, Matched, Skipped
    from photo.neighbour import Neighbour, SharedProbe
    from photo.options import SAMPLE_COUNT, OptionError, Options, parse, parser
    from photo.pictures import SUFFIXES, Photograph, check, find, headers_of, load_grey
    from photo.recorder import News, Recorder
    from photo.report import HEADER, outcome, report, rows, summary
    from photo.results import load_features, save_features, save_matches, save_report
    from photo.timeline import draw
except ModuleNotFoundError as missing:
    print(
        f"photo_features.py needs the package of {missing.name!r}, which is not installed.\n"
        f"In a checkout of lardon:  pip install -e '.[examples]'\n"
        f"Elsewhere:                pip install 'lardon[examples]'",
        file=sys.stderr,
    )
    sys.exit(2)

if TYPE_CHECKING:
    from lardon import Reservation

Item = TypeVar("Item")
Done = TypeVar("Done")

# How often the main thread looks at the queue, the news and Ctrl-C.
REFRESH_S: Final = 0.1
DONE, FAILED = 0, 1


# The three tasks ------------------------------------------------------------------


def import_photographs(context: TaskContext, job: Job) -> None:
    """Decode every photograph that was found, and keep those that can be used."""
    in_batches(context, job, check, job.found, job.photographs)


def extract_features(context: TaskContext, job: Job) -> None:
    """Write the features of every photograph to a file of its own."""
    detector = job.options.detector

    def extract(photograph: Photograph) -> Extracted:
        grey, scale = load_grey(photograph, detector.most_pixels)
        features = detect(grey, detector, scale)
        file = job.options.features_folder / f"{photograph.name}.npz"
        save_features(file, features)
        return Extracted(photograph, file, len(features))

    in_batches(context, job, extract, job.photographs, job.extracted)


def match_neighbours(context: TaskContext, job: Job) -> None:
    """Write what each photograph has in common with the next one, in order of name."""

    def match_pair(pair: tuple[Extracted, Extracted]) -> Matched:
        left, right = pair
        matches = match(load_features(left.file), load_features(right.file), job.options.detector)
        file = job.options.matches_folder / f"{left.photograph.name}--{right.photograph.name}.npz"
        save_matches(file, matches)
        return Matched(left, right, file, len(matches.pairs), int(matches.inliers.sum()))

    in_batches(context, job, match_pair, list(pairwise(job.extracted)), job.matched)


def in_batches(
    context: TaskContext,
    job: Job,
    work: Callable[[Item], Done],
    items: Sequence[Item],
    results: list[Done],
) -> None:
    """
    Do *work* on every item, a batch at a time, with a thread for each item of the batch.

    The batch is what is in memory at once, so the size that the governor grants is all
    that has to be obeyed. More threads than CPUs do no harm: Pillow and OpenCV work without
    Python's lock (16 photographs took 3.2 to 3.8 s on 2 CPUs, with 2 threads and with 16).
    """

    def run(batch: list[Item]) -> None:
        contract = context.contract
        # The CPUs granted, shared out: OpenCV would start threads of its own in each of ours.
        cv2.setNumThreads(max(1, contract.cpus // len(batch)))
        with (
            job.recorder.batch(context.name, contract, len(batch), len(items)),
            ThreadPoolExecutor(len(batch)) as threads,
        ):
            for result in threads.map(lambda item: job.attempt(context.name, work, item), batch):
                if isinstance(result, Skipped):
                    job.skipped.append(result)
                else:
                    results.append(result)
        if job.neighbour is not None and (news := job.neighbour.batch_done(context.name)):
            job.recorder.news.put(News(news))

    # Between two calls of run the reservation goes back, and the next size is asked for.
    context.map_batches(run, items)


# The queue and its governor -------------------------------------------------------


class TellingGovernor(Governor):
    """A governor that also tells the recorder what it answers."""

    recorder: Recorder | None = None

    def reserve(
        self,
        estimate: ResourceEstimate,
        *,
        holder: str = "",
        replaces: Reservation | None = None,
        devices: Iterable[str] | None = None,
    ) -> tuple[Decision, Reservation | None]:
        """Decide and book as ever; the holder is the name of the task that asks."""
        answer = super().reserve(estimate, holder=holder, replaces=replaces, devices=devices)
        if self.recorder is not None:
            self.recorder.heard(holder, estimate, answer[0])
        return answer


def fill(queue: TaskQueue, job: Job, cpus: int) -> list[Task]:
    """Submit the three tasks; each starts when the one before it has ended."""
    importing, extracting, matching = estimates(
        len(job.found),
        headers_of(job.found),
        job.options.detector,
        most=job.options.max_batch,
        cpus=cpus,
    )
    tasks = [
        queue.submit(import_photographs, job, estimate=importing, name="import"),
        queue.submit(extract_features, job, estimate=extracting, name="features"),
        queue.submit(match_neighbours, job, estimate=matching, name="matches"),
    ]

    def drop_the_rest(ended: Task) -> None:
        if ended.state is TaskState.FAILED:
            queue.cancel_all()

    for task in tasks:
        task.add_done_callback(drop_the_rest)
    return tasks


def watch(queue: TaskQueue, recorder: Recorder, display: Display, interrupts: Interrupts) -> None:
    """Show the run until every task has ended; pause, ask and cancel as Ctrl-C says."""
    pausing = stopping = False
    while not queue.join(REFRESH_S):
        show(queue, recorder, display)
        if stopping:
            continue
        if interrupts.terminated or interrupts.presses > (1 if display.can_ask else 0):
            display.say("Cancelling; the batch in hand is finished first.")
            queue.cancel_all()
            stopping = True
        elif interrupts.presses and not pausing:
            display.say("Pausing after the batch in hand. Press Ctrl-C again to cancel.")
            queue.pause_all()
            pausing = True
        elif pausing and not queue.statistics().running:
            if resume_wanted(display, interrupts):
                pausing, interrupts.presses = False, 0
                queue.resume_all()
            else:
                interrupts.presses = 2
    show(queue, recorder, display)


def resume_wanted(display: Display, interrupts: Interrupts) -> bool:
    """Ask the user; another Ctrl-C is an answer too."""
    try:
        with interrupts.raised():
            return display.ask_to_resume()
    except KeyboardInterrupt:
        return False


def show(queue: TaskQueue, recorder: Recorder, display: Display) -> None:
    """Bring the progress up to date, and print what is new."""
    display.show(queue.tasks())
    while not recorder.news.empty():
        display.tell(recorder.news.get())


# The program ----------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    # Photographs of 100 megapixels are what cameras make; what is beyond Pillow's second
    # limit is refused, and reported like any other photograph that cannot be read.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    options = parse(arguments)
    with Interrupts() as interrupts:
        try:
            with Display() as display:
                found = photographs_for(options, display)
                with interrupts.counted():
                    return main_job(options, found, display, interrupts)
        except OptionError as error:
            parser().error(str(error))
        except OSError as error:
            print(f"photo_features.py: {printable(str(error))}", file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            print("Cancelled before the work began.")
            return interrupts.exit_status


def photographs_for(options: Options, display: Display) -> list[Path]:
    """Return the photographs of the folder, or make sample ones."""
    if options.folder is not None:
        found, others = find(options.folder)
        if not found:
            message = f"no photographs in {options.folder}: no {', '.join(sorted(SUFFIXES))}"
            raise OptionError(message)
        if others:
            display.say(f"Not photographs, and ignored: {len(others)}, such as {others[0].name}.")
        return found[: options.count]
    count, folder = options.count or SAMPLE_COUNT, options.output / "photographs"
    display.say("No FOLDER: {} samples of {}x{} pixels in {}.".format(count, *options.size, folder))
    return list(display.track(samples.write(folder, count, *options.size), count))


def main_job(options: Options, found: list[Path], display: Display, interrupts: Interrupts) -> int:
    """Work on the photographs *found*, and return the exit status."""
    started_at = datetime.datetime.now(datetime.UTC)
    for folder in (options.features_folder, options.matches_folder):
        folder.mkdir(exist_ok=True)
    # A report tells of the results beside it, never of an earlier run.
    options.report_file.unlink(missing_ok=True)

    machine = SystemProbe()
    probe: SystemProbe | SharedProbe = machine
    limit = options.memory_limit_bytes
    with contextlib.ExitStack() as stack:
        neighbour = None
        if options.neighbour and limit is not None:
            neighbour = stack.enter_context(Neighbour(limit // 2))
            probe = SharedProbe(machine, neighbour, limit)
        governor = TellingGovernor(Policy(ram_limit_bytes=limit), probe=probe)
        recorder = stack.enter_context(Recorder(governor, probe))
        governor.recorder = recorder
        job = Job(options, recorder, found, neighbour)
        with TaskQueue(governor, name="photographs") as queue:
            tasks = fill(queue, job, governor.snapshot().cpus)
            watch(queue, recorder, display, interrupts)

    save_report(options.report_file, report(job, tasks, started_at))
    display.table("What was granted, and by how much memory grew at most", HEADER, rows(job, tasks))
    display.say(summary(job))
    if options.timeline is not None:
        draw(
            options.timeline,
            recorder.samples,
            recorder.batches,
            recorder.waits,
            options.memory_limit_bytes,
        )
    return exit_status(job, tasks, interrupts)


def exit_status(job: Job, tasks: Sequence[Task], interrupts: Interrupts) -> int:
    """Return the status that tells how the run ended; say on standard error why it failed."""
    ended = outcome(tasks)
    if ended == "cancelled":
        return interrupts.exit_status
    if ended == "completed" and job.photographs:
        return DONE
    for task in tasks:
        if task.state is TaskState.FAILED:
            print(f"{task.name} failed: {printable(str(task.reason))}", file=sys.stderr)
    if ended == "completed":
        print("None of the photographs can be used.", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
