"""What went wrong between other programs and Slurm, tried here on what its versions print."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from lardon.dispatch.errors import (
    FinishedError,
    InvalidError,
    NotFoundError,
    OutcomeUnknown,
    RequeueBitMaybeSet,
)
from lardon.dispatch.model import Cause, JobSpec, Observation, Ref, State
from lardon.dispatch.slurm import ClusterUnreachable, UnreadableAnswer
from lardon.dispatch.slurm.accounting import FIELDS, SEPARATOR, parse_history
from lardon.dispatch.slurm.delivery import AMBIENT
from lardon.dispatch.slurm.listing import parse_listing
from lardon.dispatch.slurm.reader import read
from lardon.dispatch.slurm.states import meaning
from lardon.dispatch.slurm.submission import submit_call, submitted_id
from lardon.dispatch.slurm.wrapper import Call
from tests.slurm.recorded import OUTAGE, SUBMITTED, UID, VERSIONS, Scripted, job, listing

ULID: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
NAME: Final = f"dj-{ULID}"
AT: Final = datetime.datetime.fromtimestamp(SUBMITTED, datetime.UTC)
REF: Final = Ref(NAME, 7, AT)
NONCE: Final = "0" * 32


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Scripted]:
    one = Scripted(tmp_path)
    yield one
    one.backend.close()


def history(*rows: tuple[str, ...]) -> str:
    """Return what `sacct` prints: id, shown id, name, uid, state, submission, exit code, nodes."""
    return "".join(SEPARATOR.join(row) + "\n" for row in rows)


def row(job_id: str = "7", **fields: str) -> tuple[str, ...]:
    given = {
        "JobIDRaw": job_id, "JobID": job_id, "JobName": NAME, "UID": str(UID),
        "State": "COMPLETED", "Submit": "2027-01-15T08:00:00", "ExitCode": "0:0", "NodeList": "n1",
    }  # fmt: skip
    return tuple((given | fields)[name] for name in FIELDS)


def with_accounting(slurm: Scripted, text: str) -> None:
    slurm.configure(storage="slurmdbd")
    (slurm.bin / "history").write_text(text)
    slurm.command("sacct", f"cat {slurm.bin}/history")


def see(slurm: Scripted, ref: Ref = REF) -> Observation:
    return slurm.backend.observe_many([ref])[ref]


# H69 ------------------------------------------------------------------------------


def test_h69_what_cannot_be_sent_is_refused_in_the_callers_thread(slurm: Scripted) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            raise RuntimeError("not today")

    for command in (["python", Hostile()], ["a\0b"], "python x.py", []):
        with pytest.raises(InvalidError):
            JobSpec(id=ULID, command=command)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="spec"):
        slurm.backend.start(Hostile())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        OutcomeUnknown("may be", settles_at=AT),
        RequeueBitMaybeSet("may be set", settles_at=AT, result=OutcomeUnknown("x", settles_at=AT)),
        UnreadableAnswer("what?", version="99.05"),
        NotFoundError("gone", ref=REF),
    ],
    ids=lambda error: type(error).__name__,
)
def test_h69_errors_cross_a_process_border_whole(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__.keys() == error.__dict__.keys()


# H94, H95, H96: absence and outages -------------------------------------------------


def test_h94_one_id_that_is_gone_hides_no_other(slurm: Scripted) -> None:
    """No id is asked for: the whole queue is read, and what is missing is asked elsewhere."""
    slurm.queue(job("22.05.8", job_id=8, states=["RUNNING"]))
    with_accounting(slurm, history(row("7", State="FAILED", ExitCode="3:0")))
    other = attrs.evolve(REF, id=8)

    seen = slurm.backend.observe_many([REF, other, attrs.evolve(REF, id=9)])

    assert [one.state for one in seen.values()] == [State.ENDED, State.RUNNING, State.UNKNOWN]
    assert (seen[REF].cause, seen[REF].exit_code) == (Cause.NON_ZERO_EXIT, 3)
    assert len(slurm.calls("squeue")) == 1
    assert "-j" not in slurm.calls("squeue")[0].split()


def test_h95_unknown_has_an_end(slurm: Scripted) -> None:
    """Absent from both for ten minutes: lost, with the evidence, and never a success before."""
    with_accounting(slurm, "")
    assert not see(slurm).known
    for _ in range(9):
        slurm.clock.advance(60)
        assert not slurm.backend.ceased(REF).ceased
        assert see(slurm).cause is Cause.UNKNOWN
    slurm.clock.advance(60)

    lost = slurm.backend.ceased(REF)

    assert lost.ceased
    assert lost.detail.startswith("lost: absent from queue and accounting, for 600 s")


def test_h95_who_is_seen_again_was_not_lost(slurm: Scripted) -> None:
    see(slurm)
    slurm.clock.advance(599)
    slurm.queue(job("22.05.8"))
    assert see(slurm).known
    slurm.queue()
    see(slurm)
    slurm.clock.advance(599)

    assert not slurm.backend.ceased(REF).ceased


def test_h96_an_outage_freezes_what_is_known_and_ends_by_itself(slurm: Scripted) -> None:
    slurm.queue(job("22.05.8", states=["RUNNING"]))
    stream = slurm.backend.watch()
    assert stream.get(5).state is State.RUNNING
    slurm.queue(errors=OUTAGE)
    for _ in range(3):
        with pytest.raises(ClusterUnreachable, match="Unable to contact"):
            see(slurm)

    slurm.queue(job("22.05.8", states=["COMPLETED"]))
    assert see(slurm).cause is Cause.COMPLETED

    # Whoever asks, the watchers hear of it; of the outage they heard nothing.
    assert stream.get(5).cause is Cause.COMPLETED
    assert not stream.closed


@pytest.mark.parametrize("printed", ["", "slurm_load_jobs error: Unable to contact\n"])
def test_h96_an_outage_in_words_is_one_too(slurm: Scripted, printed: str) -> None:
    slurm.say_queue(printed, status=1)

    with pytest.raises(ClusterUnreachable):
        see(slurm)


def test_h96_five_hundred_jobs_are_cancelled_with_five_calls(slurm: Scripted) -> None:
    slurm.queue(*(job("22.05.8", job_id=number) for number in range(1, 501)))
    slurm.command("scancel", "exit 0")

    slurm.backend.stop_many([attrs.evolve(REF, id=number) for number in range(1, 501)])

    calls = slurm.calls("scancel")
    assert [len(call.split()) - 1 for call in calls] == [100] * 5
    assert {int(word) for call in calls for word in call.split()[1:]} == set(range(1, 501))


# H97: forms that change -------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_h97_the_forms_of_the_versions_are_one_model(version: str) -> None:
    text = listing(
        version,
        job(version, states=["FAILED"], exit_code=3 << 8, reason="NonZeroExitCode"),
        job(version, job_id=8, user_id=99),
        job(version, job_id=9, name="somebody's"),
    )

    found = parse_listing(text, UID)

    assert (found.version, found.foreign) == (version, 2)
    (one,) = found.rows
    assert (one.ref, one.exit_code, one.signal, one.nodes) == (REF, 3, None, ("n1",))
    assert (one.states, one.restarts, one.requeue_bit) == (("FAILED",), 0, False)
    assert one.sluid == ("s0123456789ABCDE" if version >= "25.11" else None)


@pytest.mark.parametrize(
    "change",
    [
        {"job_state": {"current": "RUNNING"}},
        {"job_state": []},
        {"job_id": "seven"},
        {"submit_time": "2027-01-15T08:00:00"},
        {"submit_time": {"set": False, "infinite": False, "number": 0}},
        {"eligible_time": {"value": 1}},
        {"requeue": "NO"},
        {"name": 7},
    ],
)
def test_h97_a_form_of_the_future_is_not_read_and_not_an_empty_queue(change: Any) -> None:
    text = listing("99.05.0", job("25.11.1") | change)

    with pytest.raises(UnreadableAnswer, match=r"99\.05\.0") as unreadable:
        parse_listing(text, UID)

    assert unreadable.value.version == "99.05.0"


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"jobs": {}}', "JOBID NAME\n7 x\n"])
def test_h97_what_is_no_listing_is_no_empty_one(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        parse_listing(text, UID)


# H98: which id ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "job_id"),
    [("397\n", 397), ("75168975;cl\n", 75168975), ("\n12;alpha-2.x\n\n", 12)],
)
def test_h98_the_id_is_the_one_line_that_was_asked_for(printed: str, job_id: int) -> None:
    assert submitted_id(printed) == job_id


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "\n",
        "Submitted batch job 397 on cluster nautilus\n",
        "397 nautilus\n",
        "0\n",
        "-7\n",
        "397_4\n",
        "".join(f"* {number} users are logged in\n" for number in range(12)) + "397\n",
        "397\n398\n",
    ],
)
def test_h98_anything_else_is_unreadable_and_never_guessed(printed: str) -> None:
    with pytest.raises(UnreadableAnswer):
        submitted_id(printed)


def test_h98_a_job_whose_id_cannot_be_read_is_there_all_the_same(slurm: Scripted) -> None:
    """The submission landed: the outcome is unknown, and the job is found by its name."""
    slurm.command("sbatch", "echo Submitted batch job 397 on cluster nautilus")

    with pytest.raises(OutcomeUnknown, match="no id that can be read") as unknown:
        slurm.backend.start(JobSpec(id=ULID, command=["true"]))

    assert unknown.value.settles_at is not None


# H99, H100: states -----------------------------------------------------------------------

STATES: Final[dict[str, tuple[State, Cause | None]]] = {
    "BOOT_FAIL BF": (State.ENDED, Cause.BOOT_FAIL),
    "CANCELLED CA": (State.ENDED, Cause.CANCELLED),
    "COMPLETED CD": (State.ENDED, Cause.COMPLETED),
    "CONFIGURING CF": (State.RUNNING, None),
    "COMPLETING CG": (State.RUNNING, None),
    "DEADLINE DL": (State.ENDED, Cause.TIMEOUT),
    "FAILED F": (State.ENDED, Cause.NON_ZERO_EXIT),
    "NODE_FAIL NF": (State.ENDED, Cause.NODE_LOST),
    "OUT_OF_MEMORY OOM": (State.ENDED, Cause.OUT_OF_MEMORY),
    "PENDING PD": (State.PENDING, None),
    "PREEMPTED PR": (State.ENDED, Cause.PREEMPTED),
    "RUNNING R": (State.RUNNING, None),
    "RESV_DEL_HOLD RD": (State.PENDING, None),
    "REQUEUE_FED RF": (State.PENDING, None),
    "REQUEUE_HOLD RH": (State.PENDING, None),
    "REQUEUED RQ": (State.PENDING, None),
    "RESIZING RS": (State.RUNNING, None),
    "REVOKED RV": (State.ENDED, Cause.CANCELLED),
    "SIGNALING SI": (State.RUNNING, None),
    "SPECIAL_EXIT SE": (State.PENDING, None),
    "STAGE_OUT SO": (State.RUNNING, None),
    "STOPPED ST": (State.RUNNING, None),
    "SUSPENDED S": (State.RUNNING, None),
    "TIMEOUT TO": (State.ENDED, Cause.TIMEOUT),
}


@pytest.mark.parametrize("names", STATES)
def test_h99_every_documented_state_in_every_spelling(names: str) -> None:
    long, short = names.split()
    cut = [f"{long[:width]}+" for width in (9, 10) if len(long) > width]

    for text in (long, short, long.lower(), f" {long} ", *cut):
        found = meaning([text])
        assert (found.state, found.cause) == STATES[names], text


def test_h99_words_behind_a_state_say_who() -> None:
    assert meaning(["CANCELLED by 1001"]).cause is Cause.CANCELLED


@pytest.mark.parametrize("text", ["FROBNICATED", "", "R2", "??", "RE+", "C+"])
def test_h99_an_unknown_word_is_neither_running_nor_failed(text: str) -> None:
    found = meaning([text])
    assert (found.state, found.cause) == (State.UNKNOWN, Cause.UNKNOWN)


def test_h99_the_word_itself_is_shown(slurm: Scripted) -> None:
    slurm.queue(job("22.05.8", states=["FROBNICATED"]))

    seen = see(slurm)

    assert (seen.state, seen.detail) == (State.UNKNOWN, "FROBNICATED")
    assert not slurm.backend.ceased(REF).ceased


def test_h100_a_job_that_comes_back_has_one_result(slurm: Scripted) -> None:
    """Preempted five times with its bit set: never ended on the way, and counted as restarts."""
    slurm.version = "23.11.10"
    ends = []
    for round_ in range(5):
        for states in (["RUNNING"], ["PREEMPTED"], ["PENDING", "REQUEUED", "COMPLETING"]):
            restarts = round_ + (states[0] == "PENDING")
            slurm.queue(job("23.11.10", states=states, requeue=True, restarts=restarts))
            ends.append(see(slurm).ended)
    slurm.queue(job("23.11.10", states=["COMPLETED"], requeue=True, restarts=5))

    last = see(slurm)

    assert not any(ends)
    assert (last.cause, last.restarts) == (Cause.COMPLETED, 5)


def test_h100_without_the_bit_a_preemption_is_the_end(slurm: Scripted) -> None:
    slurm.queue(job("22.05.8", states=["PREEMPTED"], requeue=False))

    seen = see(slurm)

    assert (seen.state, seen.cause) == (State.ENDED, Cause.PREEMPTED)


# H101, H102, H103: rows that are not the job ------------------------------------------------


def test_h101_an_array_is_no_job_of_ours(slurm: Scripted) -> None:
    """The adapter submits none: an element is not taken for the job whose number it shares."""
    text = listing("24.05.4", job("24.05.4", job_id=78, array_job_id=7), job("24.05.4", job_id=8))
    found = parse_listing(text, UID)
    past = parse_history(
        history(
            row("77", JobID="77_0"),
            row("77", JobID="77_[1-3%1]", State="PENDING"),
            row("7"),
        ),
        UID,
    )

    assert [one.job_id for one in found.rows] == [8]
    assert found.foreign == 1
    assert [one.job_id for one in past.rows] == [7]
    assert past.ignored == 2
    spec = JobSpec(id=ULID, command=["true"], extensions={"slurm": {"array": "0-3"}})
    with pytest.raises(InvalidError, match=r"extensions\.slurm\.array"):
        slurm.backend.start(spec)


@pytest.mark.parametrize("name", ["a|b", "x\ny", 'it\'s "quoted"', "--wrap", "a,b", "dj|7"])
def test_h102_other_peoples_names_shift_no_column(name: str) -> None:
    text = listing("22.05.8", job("22.05.8", job_id=1, name=name), job("22.05.8"))
    past = parse_history(history(row("1", JobName=name), row("7")), UID)

    assert [one.job_id for one in parse_listing(text, UID).rows] == [7]
    assert [one.job_id for one in past.rows] == [7]
    # A newline makes two lines of one row; neither is a job.
    assert past.ignored == 1 + name.count("\n")


def test_h102_our_own_names_are_safe_and_are_asked_for_whole() -> None:
    call = submit_call(
        JobSpec(id=ULID, command=["true"]), attempt=NONCE, defaults={}, output_folder=None
    )

    assert f"--job-name={NAME}" in call.argv
    assert NAME.replace("-", "").isalnum()


def test_h103_the_row_of_the_job_decides() -> None:
    past = parse_history(
        history(
            row("7", State="TIMEOUT"),
            row("7.batch", State="CANCELLED"),
            row("7.extern", State="COMPLETED"),
            row("7.0", State="FAILED"),
        ),
        UID,
    )

    (one,) = past.rows
    assert (one.states, past.ignored) == (("TIMEOUT",), 3)


@pytest.mark.parametrize("state", ["REQUEUED", "RUNNING", "PENDING"])
def test_h95_a_run_that_the_accounting_never_ended_is_not_waited_for(
    slurm: Scripted, state: str
) -> None:
    """Put back under another submit time (seen on 22.05), or lost with its controller."""
    again = row("7", State="CANCELLED by 0", Submit="2027-01-15T08:00:03", NodeList="None assigned")
    with_accounting(slurm, history(row("7", State=state), again))
    later = attrs.evolve(REF, submitted_at=AT + datetime.timedelta(seconds=3))

    assert not see(slurm).known
    assert see(slurm, later).cause is Cause.CANCELLED
    assert [one.ref for one in slurm.backend.find_all(ULID)] == [later]


def test_h103_an_ended_job_that_is_still_listed_has_ended(slurm: Scripted) -> None:
    slurm.queue(job("22.05.8", states=["COMPLETED"]))

    assert see(slurm).ended
    with pytest.raises(FinishedError):
        slurm.backend.open(REF)


# H104, H107: clocks, zones, and what the user has set ----------------------------------------


def test_h104_every_time_is_asked_for_in_utc(slurm: Scripted) -> None:
    """Also where the day has 23 hours: seconds since 1970 have no zone, and sacct is told one."""
    slurm.command("squeue", f'[ "$TZ" = UTC0 ] && cat {slurm.bin}/queue')
    with_accounting(slurm, history(row("7")))
    slurm.command("sacct", f'[ "$TZ" = UTC0 ] && cat {slurm.bin}/history')

    assert see(slurm).cause is Cause.COMPLETED
    assert "-S 2027-01-14T08:00:00" in slurm.calls("sacct")[0]


@pytest.mark.parametrize("skew_s", [20, 360])
def test_h104_a_skew_is_part_of_the_bound(slurm: Scripted, skew_s: float) -> None:
    usual = slurm.backend.declarations().call_bound_s
    skewed = slurm.new_backend(skew_s=skew_s)

    assert skewed.declarations().call_bound_s == pytest.approx(usual - 2 + skew_s)
    skewed.close()


def test_h104_a_credential_that_expired_says_so_and_settles() -> None:
    """
    It did not take effect, as far as that text can be believed, and the words are kept.

    The credential of the answer may have expired as well, so the outcome is unknown until the
    bound, which is when it certainly did not.
    """
    said = "scontrol: error: Munge decode failed: Expired credential\n"
    call = Call(("scontrol", "update", "JobId=7", "Requeue=0"))

    with pytest.raises(OutcomeUnknown, match="Expired credential") as unknown:
        read(f"{said}\x1eDSL {NONCE} call 1 1\n", 1, NONCE, [call], settles_at=AT)

    assert unknown.value.settles_at == AT


def test_h107_what_the_user_has_set_changes_nothing(
    slurm: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {
        "SQUEUE_FORMAT": "%j", "SACCT_FORMAT": "jobname", "SLURM_TIME_FORMAT": "relative",
        "SLURM_CLUSTERS": "beta", "SBATCH_ARRAY_INX": "0-3", "SBATCH_REQUEUE": "1",
        "SBATCH_WAIT": "1", "SBATCH_MEM_PER_CPU": "1", "LC_ALL": "tlh_KL.UTF-8",
    }  # fmt: skip
    for name, value in odd.items():
        monkeypatch.setenv(name, value)
    seen = slurm.bin / "environment"
    slurm.command("squeue", f"env > {seen}; cat {slurm.bin}/queue")
    slurm.command("sbatch", f"env > {seen}.sbatch; echo 7")
    slurm.queue(job("22.05.8"))
    slurm.command("squeue", f"env > {seen}; cat {slurm.bin}/queue")

    assert slurm.backend.start(JobSpec(id=ULID, command=["true"])) == REF

    for file in (seen, Path(f"{seen}.sbatch")):
        names = {line.partition("=")[0] for line in file.read_text().splitlines()}
        assert not names & set(AMBIENT)
    assert set(odd) - {"LC_ALL"} <= set(AMBIENT)


# H105, H106 ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_h105_a_call_that_hangs_is_killed_there_and_is_unknown_here(tmp_path: Path) -> None:
    """Seen over ssh, with a real sshd, in `tests/slurm/test_real_ssh.py`."""
    slurm = Scripted(tmp_path)
    backend = slurm.new_backend(bound_s=11)
    slurm.queue(job("22.05.8", states=["PENDING"], reason="JobHeldUser"))
    slurm.command("scontrol", f'[ "$1" = show ] && cat {slurm.bin}/config || kill -9 $$')

    with pytest.raises(OutcomeUnknown, match="killed when its time was up"):
        backend.open(REF)

    backend.close()
    slurm.backend.close()


@pytest.mark.parametrize(("appears_at", "done"), [(8, True), (None, False)])
def test_h106_a_result_that_is_seen_late_is_waited_for_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, appears_at: float | None, done: bool
) -> None:
    """The example's jobs write their result last and whole, and the folder is read anew."""
    pytest.importorskip("cv2", reason="the extra 'examples' is not installed")
    from slurm_photo import follow
    from slurm_photo.plan import Part, result_file

    part = Part(ULID, "features", ())
    (tmp_path / "results").mkdir()
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if appears_at is not None and now[0] >= appears_at:
            result_file(tmp_path, part).write_text("{}")

    monkeypatch.setattr("slurm_photo.follow.time.sleep", sleep)
    monkeypatch.setattr("slurm_photo.follow.time.monotonic", lambda: now[0])
    # A part of a file has another name until it is whole.
    (tmp_path / "results" / f".{ULID}.json.part").write_text("{")
    follower = follow.Follower(None, tmp_path, lambda _: [], 1, 0.5)  # type: ignore[arg-type]

    assert follower._is_done(part, follow.FILE_PATIENCE_S) is done
    assert now[0] <= follow.FILE_PATIENCE_S + 0.5
