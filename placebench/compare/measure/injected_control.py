"""The control of a comparison, ready to be measured: what is injected into it, `calibrate` and `with_statement`.

An application is wrapped by the name that its server loads; `placebench.compare.what.variants.wrapped` does it. A
command is entered when it runs, and whether that works shows with its first request: otherwise nothing is injected.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from placebench.compare.keep.control import Control, ControlRecord, control_path
from placebench.compare.keep.phase_timer import PhaseTimer
from placebench.compare.keep.records import Block
from placebench.compare.keep.run_folder import RunFolder
from placebench.compare.measure.prepared_variants import PreparedVariants
from placebench.compare.measure.replicate import make_replicate
from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.errors import LoadError

_CALIBRATION_ROUNDS = 8


def entered_path(folder: Path) -> Path:
    """Return the file that the control makes with its first request, if a command serves it."""
    return folder / "log" / "control-entered"


def with_statement(prepared: PreparedVariants, control: Control, name: str) -> PreparedVariants:
    """Return the variants with one more statement in each request to the control *name*; save what is injected."""
    ControlRecord(control.kind, control.amount, prepared.variants[0].name, name, None).save(
        control_path(prepared.folder)
    )
    return _with_variable(prepared, name, "PLACEBENCH_CONTROL_STATEMENTS", f"{control.amount:g}")


def keep_if_entered(prepared: PreparedVariants, record: ControlRecord) -> ControlRecord:
    """Return the record, without an injection if no request has reached one in the control's command; save it."""
    baseline = prepared.named[record.baseline]
    if baseline.command and not entered_path(prepared.folder).exists():
        reason = (
            f"the command of {baseline.name} serves no application that can be changed: expected WSGI or ASGI in "
            "CPython 3.11 or later, under a server that placebench knows"
        )
        record = replace(record, injected_s=None, reason=reason)
    record.save(control_path(prepared.folder))
    return record


def with_injection(prepared: PreparedVariants, record: ControlRecord) -> PreparedVariants:
    """Return the variants with the slow-down in the control; without the control if nothing is injected."""
    if record.injected_s is None:
        return replace(prepared, variants=tuple(each for each in prepared.variants if each.name != record.variant))
    variable = "PLACEBENCH_CONTROL_CPU_S" if record.kind == "cpu" else "PLACEBENCH_CONTROL_WAIT_S"
    return _with_variable(prepared, record.variant, variable, repr(record.injected_s))


def calibrate(run: RunFolder, prepared: PreparedVariants, control: Control, name: str) -> ControlRecord:
    """Return what to inject into each request of the control *name*, and save it; what was injected once stays.

    A share of CPU needs the baseline's CPU per request: it is measured on the control before anything is injected, in
    fresh processes, as a replicate is. Takes a start and some 2 s; a wait in a command takes a start.
    """
    path = control_path(run.path)
    if path.is_file() and (earlier := ControlRecord.load(path)).injected_s is not None:
        return earlier
    baseline = prepared.variants[0]
    injected_s: float | None = control.amount
    if control.kind == "cpu" or baseline.command:
        under_load = prepared.users > 1 or prepared.rate is not None  # its blocks last a second or more each
        rounds = _CALIBRATION_ROUNDS if control.kind == "cpu" and not under_load else 1
        run.begin_step("control", f"{name}: CPU per request of {baseline.name}, for {control.label}")
        blocks = run.try_twice(f"{name} calibration", lambda: _blocks(prepared, name, run.head.seed, rounds))
        if control.kind == "cpu":
            cpu_s = _cpu_per_request(blocks)
            injected_s = None if cpu_s is None else control.amount * cpu_s
    return keep_if_entered(prepared, ControlRecord(control.kind, control.amount, baseline.name, name, injected_s))


def _with_variable(prepared: PreparedVariants, name: str, variable: str, value: str) -> PreparedVariants:
    variants = (
        replace(each, variables={**each.variables, variable: value}) if each.name == name else each
        for each in prepared.variants
    )
    return replace(prepared, variants=tuple(variants))


def _blocks(prepared: PreparedVariants, name: str, seed: int, rounds: int) -> list[Block]:
    """Return the blocks of one replicate of the variant alone; raises LoadError if it is not valid."""
    # It is not one of the replicates, whose time is shown, and its process need not grow old.
    apart = replace(prepared, timer=PhaseTimer(), ages_s=0.0)
    blocks = make_replicate(apart, plan_replicate([name], 0, rounds=rounds, seed=seed))
    if reason := next((block.invalid for block in blocks if block.invalid), None):
        raise LoadError(reason)
    return blocks


def _cpu_per_request(blocks: Sequence[Block]) -> float | None:
    taken = [block.cpu_s for block in blocks if block.cpu_s is not None]
    if len(taken) < len(blocks) or not sum(taken):
        return None
    return sum(taken) / sum(block.requests for block in blocks)
