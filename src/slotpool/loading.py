"""`slotpool.load`: a llama_cpp.Llama whose experts live in the store and are used from slots.

Everything that is not about the pool is llama-cpp-python's: every other keyword is passed on as it is.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp

from slotpool import engine, model, plan, planning, pool_stats
from slotpool import profile as profiles
from slotpool.errors import REFUSED, SlotpoolError, printable, unknown
from slotpool.model import Model
from slotpool.native import Session
from slotpool.plan import OnePerDevice, PerLayer, PerRole, Plan, RamBudget, Slots
from slotpool.plan.bind import check_alone
from slotpool.profile import PinShare, Profile
from slotpool.reserve import KV_TYPES, Wanted
from slotpool.trace import TraceWriter
from slotpool.trace.fingerprint import facts_of, fingerprint

_loading = threading.Lock()
"""One load at a time: the core has one session open for loading, and the engine's defaults are changed while it loads."""


class PooledLlama(llama_cpp.Llama):
    """A llama_cpp.Llama under a plan. Made by `load`; `slotpool.stats` reads it."""

    def __init__(self, path: str, made: Plan, trace_path: str | os.PathLike[str] | None = None, **llama_options: Any) -> None:
        self.slotpool_plan = made
        self.slotpool_session: Session | None = None
        self.slotpool_model: Model | None = None
        self.slotpool_save_profile: str | os.PathLike[str] | None = None  # written when it is closed
        self.slotpool_traced: tuple[int, int] | None = None  # events recorded and dropped, once closed
        self._is_traced = False
        if not made.groups:
            super().__init__(path, **llama_options)
            return
        session = Session(plan.to_text(made))
        self.slotpool_session = session
        try:
            if trace_path is not None:
                session.trace(trace_path)
                self._is_traced = True
            engine.register_core()
            with _experts_left_on_disk(session) if made.reads_files else nullcontext():
                super().__init__(path, **llama_options)
        except BaseException:
            self.close()
            raise
        finally:
            session.loaded()

    def eval(self, tokens: Sequence[int]) -> None:
        """As llama_cpp.Llama.eval; a failure of the pool is a SlotpoolError in its own words, and the pool survives it."""
        session = self.slotpool_session
        if session:
            session.take_failure()  # an older one, of a decode that did not come through here
        try:
            super().eval(tokens)
        except RuntimeError as error:
            failure = session.take_failure() if session else ""
            if not failure:
                raise
            raise SlotpoolError(failure, exit_code=REFUSED) from error

    def close(self) -> None:
        """Frees context, model and slots. The counters go with them."""
        if hasattr(self, "_stack"):
            # the engine expected compute buffers for its own shapes, and says at the end that small batches took others
            with nullcontext() if self.verbose or sys.is_finalizing() else engine.captured_log():
                super().close()
        session = getattr(self, "slotpool_session", None)
        if session is not None:
            try:
                if self._is_traced:
                    self.slotpool_traced = session.end_trace()
                if self.slotpool_save_profile is not None:
                    save_profile(self, self.slotpool_save_profile)
            finally:
                session.close()
                self.slotpool_session = None


def load(
    path: str | os.PathLike[str],
    slots: Slots | Sequence[Slots] = "auto",
    *,
    policy: str = "default",
    miss: str = "auto",
    device: str | Sequence[str] | None = None,
    device_budget: OnePerDevice = None,
    rpc: Sequence[str] = (),
    exact: bool = False,
    prefill: str = "bypass",
    ram_budget: RamBudget = None,
    rail: OnePerDevice = None,
    require_pool: bool = False,
    poison: bool = False,
    bypass: bool = False,
    repack: bool = True,
    trace_path: str | os.PathLike[str] | None = None,
    slots_per_layer: PerLayer = None,
    slots_per_role: PerRole = None,
    plan_file: str | os.PathLike[str] | None = None,
    profile: str | os.PathLike[str] | Profile | None = None,
    pin: PinShare = None,
    save_profile: str | os.PathLike[str] | None = None,
    **llama_options: Any,
) -> PooledLlama:
    """Loads a GGUF model with llama-cpp-python and a pool of `slots` slots per expert tensor.

    `slots`: a number, `all`, 0 (off) or `auto`: what `slotpool plan` says of this model here, off where it does not pay (asked of a
    `ram_budget` alone, as many as fit). `plan_file` is a file that `slotpool plan -o` wrote, and leaves nothing else to say of the pool.
    `slots_per_layer` ({21: "all"}, or "0-3=off,4-20=32") and `slots_per_role`
    ("down=32,gate=16") say otherwise for some tensors, and come before the others when not all fit. `policy` is one of `plan.POLICIES`.
    `device`: where slots are, ggml's name or names of devices; None is the devices that the engine gives layers to, and the CPU where
    there are none. With several, a layer's slots are on its own device, and `slots`, `device_budget` and `rail` (bytes of a device for
    slots, bytes that stay free) may be one value a device. Experts then stay in host memory, all layers go to the devices unless
    `n_gpu_layers` says otherwise, and `miss` (one of `plan.MISSES`) says how misses are served; `exact` allows only the device's own
    kernels for them. `prefill` (one of `plan.PREFILL`) says what becomes of ubatches that do not fit the slots. `rpc` adds the devices
    of RPC servers (`host:port`) first.
    With `ram_budget` (bytes, or `auto`) experts stay on disk, and so they do where `auto` meets a model larger than memory and no
    device; `rail` is then the bytes of RAM that stay free. With a `device` named as well there are two tiers: slots on the device, and
    slots in RAM behind them; `rail` stays the device's, and RAM keeps its default one.
    `require_pool` makes it an error when nothing is pooled. `poison` fills free and evicted slots with 0xFF, so that a stale read
    shows (tests). `bypass` lets generated tokens pass the pool by: slots are allocated by ubatches of two tokens, and used by no others
    (benches). `repack=False` keeps all weights in the file's layout; otherwise the engine repacks what is not pooled for its faster
    kernels, and slots over a disk hold experts as it would have repacked them. `trace_path` is a file that must not exist: the routing
    of every pooled event goes there (`slotpool.trace`).
    With `profile` (a file of `save_profile`, a trace, an imatrix, or a `Profile`) slots begin with what it says is hot; `pin`, a share of
    the slots (`25%`) or a number of them, keeps its hottest experts from ever being evicted. `save_profile` is where the profile of this
    session goes when the model is closed; `slotpool.save_profile(llm, path)` writes it at any time.
    All other keywords go to llama_cpp.Llama; `n_threads` and `n_threads_batch` are all cores unless given (the engine's own default is
    half), `verbose` is off.

    Raises SlotpoolError for a file that cannot be read, slots that one token cannot use, an unknown keyword, or nothing pooled
    with `require_pool` or `trace_path`.
    """
    _check_options(llama_options)
    facts = _readable(path)
    engine.add_rpc_servers(rpc)
    facts = _as_overridden(facts, llama_options)
    asked = planning.Asked(slots, slots_per_layer, slots_per_role, policy, miss, exact, device_budget, ram_budget, rail, rpc, prefill)
    if plan_file is not None:
        check_alone(vars(asked) | {"device": device})
        choice = planning.Choice(_from_file(facts, plan_file))
    else:
        choice = planning.choose(
            facts,
            asked,
            _devices(device, slots, ram_budget),
            lambda: _wanted(llama_options),
            llama_options.get("n_threads"),
            repack=repack,
        )
    chosen = replace(plan.repacked(choice.made, repack), poison=poison, is_bypassed=bypass)
    made = _warm(chosen, facts, profile, pin)
    if save_profile is not None:
        profiles.check_target(save_profile, fingerprint(facts))
    if (require_pool or trace_path is not None) and not made.groups:
        raise _nothing_pooled(made.reason, path)
    locked = planning.lock_notes(facts, made) if llama_options.get("use_mlock") else ()
    for warning in (*made.warnings, *locked):
        warnings.warn(warning, stacklevel=2)
    if made.devices:
        _check_split_mode(llama_options)
    if made.devices or choice.host_layers is not None:
        llama_options = {"n_gpu_layers": -1} | llama_options
    if trace_path is None:
        llm = _construct(path, facts, made, repack and not choice.stays_mapped, llama_options, choice.host_layers)
    else:
        llm = _traced(path, facts, made, repack, llama_options, trace_path)
    llm.slotpool_model = facts
    if require_pool and not read_stats(llm)["pooled_tensors"]:
        llm.close()
        raise _nothing_pooled("the loader put no expert tensor into the store", path)
    llm.slotpool_save_profile = save_profile
    return llm


def load_plain(path: str | os.PathLike[str], **llama_options: Any) -> PooledLlama:
    """Loads a model without any pool, its weights in the file's layout (no repacking): what pooled runs are compared with.

    The core never comes into the process. Keywords, threads and errors are those of `load`.
    """
    _check_options(llama_options)
    return _construct(path, _readable(path), plan.Plan(), False, llama_options)


def save_profile(llm: llama_cpp.Llama, path: str | os.PathLike[str]) -> Profile:
    """Writes which experts the pool of `llm` was asked for so far; a profile of the same model that is there is replaced.

    Raises SlotpoolError for a model that `load` did not make or that is closed, a place that cannot be written to, and (exit code 1) a
    pool that was asked for nothing: then nothing is written.
    """
    if not isinstance(llm, PooledLlama) or llm.slotpool_model is None:
        raise SlotpoolError(f"expected a model made by slotpool.load, found {type(llm).__name__}")
    session = llm.slotpool_session
    if session is None and llm.slotpool_plan.groups:
        raise SlotpoolError("expected an open model, found a closed one")
    counts = {(group.layer, group.pass_): session.heat(n) for n, group in enumerate(llm.slotpool_plan.groups)} if session else {}
    made = profiles.of_heat(facts_of(llm.slotpool_model, engine.name(), "session"), counts)
    if not made.groups:
        reason = llm.slotpool_plan.reason or "nothing reached the pool"
        raise SlotpoolError(f"expected experts that were asked for, found none: {reason}", where=printable(path), exit_code=REFUSED)
    profiles.write(path, made)
    return made


def _warm(made: Plan, facts: Model, profile: str | os.PathLike[str] | Profile | None, pin: PinShare) -> Plan:
    if profile is None or isinstance(profile, Profile):
        return plan.with_profile(made, facts, profile, pin)
    return plan.with_profile(made, facts, profiles.read(profile), pin, printable(profile))


def read_stats(llm: llama_cpp.Llama) -> pool_stats.Stats:
    """What the pool of `llm` has done so far. Raises SlotpoolError for a model that `load` did not make, or that is closed."""
    if not isinstance(llm, PooledLlama):
        raise SlotpoolError(f"expected a model made by slotpool.load, found {type(llm).__name__}")
    session = llm.slotpool_session
    if session is None:
        if llm.slotpool_plan.groups:
            raise SlotpoolError("expected an open model, found a closed one")
        return pool_stats.collect(llm.slotpool_plan, (), {})
    counts = session.counts()
    off = {
        tensor.name: session.off_reason(index) or ("" if session.is_stored(tensor.name) else pool_stats.ELSEWHERE)
        for index, group in enumerate(llm.slotpool_plan.groups)
        for tensor in group.tensors
    }
    devices, ram = session.devices(), session.ram_counts()
    return pool_stats.collect(llm.slotpool_plan, counts, off, session.why_buffered(), devices, ram, session.repacked_bytes())


def _readable(path: str | os.PathLike[str]) -> Model:
    facts = model.read(Path(os.fsdecode(path)))
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    return facts


def _devices(device: str | Sequence[str] | None, slots: Slots | Sequence[Slots], ram_budget: RamBudget) -> list[str]:
    """Names of the devices with slots; none is the CPU. SlotpoolError for one that the engine does not have."""
    if device is None or device == "auto":
        return [] if ram_budget is not None or slots == 0 else engine.offload_devices()
    names = [device] if isinstance(device, str) else list(device)
    if names == ["CPU"]:
        return []
    known = [one.name for one in engine.devices() if one.type != "ACCEL"]
    for name in names:
        if name not in known:
            raise unknown("device", name, known, where="--device")
    return names


def _from_file(facts: Model, plan_file: str | os.PathLike[str]) -> Plan:
    made = plan.bind(plan.read_plan(plan_file).plan, facts, printable(plan_file))
    known = [one.name for one in engine.devices() if one.type != "ACCEL"]
    for device in made.devices:
        if device.name not in known:
            raise unknown("device", device.name, known, where=printable(plan_file))
    return made


def _wanted(llama_options: dict[str, Any]) -> Wanted:
    """The context that the engine will be asked for, as far as its reservation depends on it."""
    defaults = inspect.signature(llama_cpp.Llama.__init__).parameters
    options = {name: llama_options.get(name, defaults[name].default) for name in ("n_ctx", "n_batch", "n_ubatch", "type_k", "n_gpu_layers")}
    kv_type = next((name for name, number in KV_TYPES.items() if number == options["type_k"]), "f16")
    n_gpu_layers = options["n_gpu_layers"] if "n_gpu_layers" in llama_options else -1
    n_ctx, n_batch, n_ubatch = (max(1, options[name]) for name in ("n_ctx", "n_batch", "n_ubatch"))
    split = tuple(llama_options.get("tensor_split") or ())
    return Wanted(n_ctx, n_batch, n_ubatch, kv_type=kv_type, n_gpu_layers=n_gpu_layers, tensor_split=split)


def _check_options(llama_options: dict[str, Any]) -> None:
    # llama_cpp.Llama drops keywords it does not know without a word
    known = [name for name in inspect.signature(llama_cpp.Llama.__init__).parameters if name not in ("self", "model_path", "kwargs")]
    for name in llama_options:
        if name not in known:
            raise unknown("keyword", name, known, where="slotpool.load")


def _check_split_mode(llama_options: dict[str, Any]) -> None:
    if llama_options.get("split_mode", llama_cpp.LLAMA_SPLIT_MODE_LAYER) not in (
        llama_cpp.LLAMA_SPLIT_MODE_LAYER,
        llama_cpp.LLAMA_SPLIT_MODE_NONE,
    ):
        raise SlotpoolError(
            "expected whole layers on a device, found a split by rows or tensors: no device has a whole expert then",
            where="slotpool.load, split_mode",
            do="Leave it out, or pass slots=0.",
        )


def _construct(
    path: str | os.PathLike[str],
    facts: Model,
    made: Plan,
    repack: bool,
    llama_options: dict[str, Any],
    host_layers: Sequence[int] | None = None,
) -> PooledLlama:
    """`host_layers`: where nothing is pooled on a device, the layers whose experts it has no room for."""
    options = {"verbose": False} | llama_options
    for name in ("n_threads", "n_threads_batch"):
        options[name] = options.get(name) or engine.n_cores()
    with _loading, ExitStack() as stack:
        lines = stack.enter_context(engine.captured_log()) if not options["verbose"] else []
        defaults: dict[str, Any] = {} if repack else {"use_extra_bufts": False}
        if host_layers:
            defaults["tensor_buft_overrides"] = stack.enter_context(engine.experts_in_host_memory(host_layers))
        if defaults:
            stack.enter_context(engine.model_defaults(**defaults))
        # the engine takes the first shard only, whichever was named
        first = os.fsdecode(path) if facts.n_shards == 1 else str(facts.files[0].path)
        text = stack.enter_context(_path_for_engine(first, facts))
        try:
            return PooledLlama(text, made, **options)
        except SlotpoolError:
            raise
        except Exception as error:  # llama-cpp-python raises what it likes: ValueError, AssertionError, errors of a chat template
            reason = "; ".join(lines[-2:]) or f"{type(error).__name__}: {error}"
            raise SlotpoolError(f"the engine could not load the model: {reason}", where=printable(path)) from error


def _traced(
    path: str | os.PathLike[str], facts: Model, made: Plan, repack: bool, llama_options: dict[str, Any], trace_path: str | os.PathLike[str]
) -> PooledLlama:
    # the header only: the core goes on from there
    TraceWriter(trace_path, facts_of(facts, engine.name(), "core")).close(is_complete=False)
    try:
        return _construct(path, facts, made, repack, {**llama_options, "trace_path": trace_path})
    except BaseException:
        os.unlink(trace_path)
        raise


@contextmanager
def _experts_left_on_disk(session: Session) -> Iterator[None]:
    """Within it the engine reads what it loads and maps nothing, and the session learns what its buffers will take."""
    with engine.loading_unmapped(), engine.compute_buffers() as buffers:
        yield
    session.add_reserve(sum(buffers.values()))


@contextmanager
def _path_for_engine(path: str, facts: Model) -> Iterator[str]:
    """A path that llama-cpp-python can encode: its own, or for bytes that are not UTF-8 a link that lives while it loads."""
    try:
        path.encode()
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory(prefix="slotpool-") as folder:
            for file in facts.files:
                _link(folder, file.shard, facts.n_shards).symlink_to(Path(file.path).absolute())
            yield str(_link(folder, 0, facts.n_shards))
        return
    yield path


def _link(folder: str, shard: int, n_shards: int) -> Path:
    return Path(folder, f"model-{shard + 1:05d}-of-{n_shards:05d}.gguf" if n_shards > 1 else "model.gguf")


def _as_overridden(facts: Model, llama_options: dict[str, Any]) -> Model:
    """The model as `kv_overrides` make it: they may change how many experts a token uses."""
    n_used = (llama_options.get("kv_overrides") or {}).get(f"{facts.architecture}.expert_used_count")
    return replace(facts, n_expert_used=n_used) if isinstance(n_used, int) else facts


def _nothing_pooled(reason: str, path: str | os.PathLike[str]) -> SlotpoolError:
    return SlotpoolError(f"expected something pooled, found nothing: {reason}", where=printable(path), exit_code=REFUSED)
