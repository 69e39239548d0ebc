"""Encode very many texts into a file, with several processes, resuming after an interruption.

Texts are encoded in blocks, each of which becomes a file next to the output; once that is made of
them, they are removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from heapq import nlargest
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from tqdm.auto import tqdm

from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.utils.arrays import Vectors
from simbert_hf.utils.atomic import whole, write_json
from simbert_hf.utils.checks import check_count
from simbert_hf.utils.locks import alone
from simbert_hf.utils.textfiles import fault

FORMATS = (".npy", ".parquet")
BLOCK = 2_000  # texts
PROBES = 8  # texts, the longest, that tell one pooling, prompt or greatest length from another


def check_output(path: Path) -> None:
    """Raise a ValueError unless the path can be a file of a known format.

    Example:
        >>> check_output(Path("a.npy"))
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: the output must be a {' or '.join(FORMATS)} file.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, but the output is a file: name another output.")


def encode_file(texts: Sequence[str], model: str, output: str | Path, *, processes: int = 1) -> int:
    """Encode texts into a file of float32 vectors of length 1.

    Args:
        texts: One text per vector.
        model: Directory or Hub id of anything that ``SentenceTransformer`` loads.
        output: ``.npy`` for an array (N, D), ``.parquet`` for columns ``text`` and ``vector``.
        processes: Number of processes: on a GPU each if there are any, else on the CPU.

    Returns:
        How many of the texts an earlier call had encoded.

    Raises:
        ValueError: If there are no texts or processes, the format is unknown, an earlier call left
            vectors of other texts, of another model or in other blocks, or another call is running.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from simbert_hf import DEFAULT_MODEL
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "vectors.npy")
        ...     done = encode_file(["where is my card?", "i like tea"], DEFAULT_MODEL, path)
        ...     done, np.load(path).shape
        (0, (2, 384))
    """
    output = Path(output)
    check_output(output)
    check_count("processes", processes)
    if not len(texts):  # which an array has too
        raise ValueError("There are no texts to encode.")
    join = _join_npy if output.suffix == ".npy" else _join_parquet
    encoder = TextEncoder(model)
    with encoded(texts, encoder, output, processes) as (files, done), whole(output) as made:
        join(files, texts, made)
    return done


@contextmanager
def encoded(
    texts: Sequence[str],
    encoder: TextEncoder,
    output: Path,
    processes: int = 1,
    *,
    discard: bool = False,
    keep: bool = False,
    progress: bool = True,
) -> Iterator[tuple[list[Path], int]]:
    """Encode texts, block by block, for the file that the ``with`` block makes of their vectors.

    The vectors' files are removed if it succeeds; else the next call for that file uses them.

    Args:
        texts: One text per vector, at least one.
        encoder: Encodes them.
        output: What is made of the vectors; these lie in a folder beside it.
        processes: Number of processes.
        discard: Remove what an earlier call left of other work, instead of raising.
        keep: Leave the vectors' files to the caller, who removes their folder.
        progress: Show a progress bar.

    Yields:
        The vectors' files (``.npy``) in order, and how many texts an earlier call had encoded.

    Raises:
        ValueError: If an earlier call left vectors of other texts, of another model or in other
            blocks, or another call is running.
    """
    parts = output.with_name(f"{output.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    with alone(parts / "lock", parts) as free:
        if not free:
            problem = "is in use by another process"
            raise fault(parts, None, problem, "Wait for it, or name another output")
        _claim(parts, texts, encoder, discard)
        yield _fill(parts, texts, encoder, processes, progress)
        for file in parts.glob("*.*"):  # all but the lock, before another call may begin
            if not keep:
                file.unlink()
    with suppress(OSError):  # which finds it in use again
        parts.rmdir()


def _fill(
    parts: Path, texts: Sequence[str], encoder: TextEncoder, processes: int, progress: bool
) -> tuple[list[Path], int]:
    """Encode the blocks that are missing; return all files, and how many texts were encoded."""
    starts = range(0, len(texts), BLOCK)
    files = [parts / f"{start}.npy" for start in starts]
    done = sum(min(BLOCK, len(texts) - i) for i, f in zip(starts, files, strict=True) if f.exists())
    bar = tqdm(total=len(texts), initial=done, desc="encoding", disable=not progress)
    with _encoding(encoder, processes) as encode, bar:
        for start, file in zip(starts, files, strict=True):
            if not file.exists():
                _write_block(file, encode(texts[start : start + BLOCK]))
                bar.update(min(BLOCK, len(texts) - start))
    return files, done


def _claim(parts: Path, texts: Sequence[str], encoder: TextEncoder, discard: bool) -> None:
    """Record what the folder's parts belong to, or check that it is the same work."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    weight = next(encoder.model.parameters(), torch.empty(0))
    halved = torch.is_autocast_enabled(weight.device.type)
    work = {
        "texts": digest, "model": encoder.fingerprint, "block": BLOCK, "autocast": halved,
    }  # fmt: skip
    note, probe = parts / "work.json", parts / "probe.npy"
    vectors = encoder(nlargest(PROBES, texts, key=len))
    if note.exists() and probe.exists():
        same = json.loads(note.read_text(encoding="utf-8")) == work
        was = np.load(probe)  # another pooling, prompt or greatest length changes no weight
        if same and was.shape == vectors.shape and abs(was - vectors).max() <= 1e-3:
            return
        if not discard:
            problem = "holds vectors of other texts, or of another model, precision or block size"
            raise fault(parts, None, problem, "Remove it, or name another output")
    note.unlink(missing_ok=True)
    for left in parts.glob("*.npy"):  # of other work, or by a kill while the folder was removed
        left.unlink()
    _write_block(probe, vectors)
    write_json(note, work)


def _write_block(file: Path, vectors: Vectors) -> None:
    vectors = np.ascontiguousarray(vectors)
    with whole(file) as made, made.open("wb") as stream:  # np.save does not say that a disk is full
        facts = np.lib.format.header_data_from_array_1_0(vectors)
        np.lib.format.write_array_header_1_0(stream, facts)
        stream.write(vectors.data)


@contextmanager
def _encoding(encoder: TextEncoder, processes: int) -> Iterator[Callable[[Sequence[str]], Vectors]]:
    """Encode with this process, or with several that stop with the block."""
    if processes == 1:
        yield encoder
        return
    gpus = torch.cuda.device_count()
    pool = encoder.model.start_multi_process_pool(
        [f"cuda:{i % gpus}" if gpus else "cpu" for i in range(processes)]
    )
    try:
        # Two chunks each; by default it would be ten, too short to group texts of like length.
        yield partial(encoder, pool=pool, chunk_size=-(-BLOCK // (2 * processes)))
    finally:
        encoder.model.stop_multi_process_pool(pool)


def _join_npy(files: Sequence[Path], texts: Sequence[str], made: Path) -> None:
    width = np.load(files[0], mmap_mode="r").shape[1]
    facts = {"descr": "<f4", "fortran_order": False, "shape": (len(texts), width)}
    with made.open("wb") as out:  # on a full disk, a write to a memory map ends the process
        np.lib.format.write_array_header_1_0(out, facts)
        for file in files:
            out.write(np.load(file).astype("<f4", copy=False).data)


def _join_parquet(files: Sequence[Path], texts: Sequence[str], made: Path) -> None:
    width = np.load(files[0], mmap_mode="r").shape[1]
    vector = pyarrow.list_(pyarrow.float32(), width)
    schema = pyarrow.schema([("text", pyarrow.string()), ("vector", vector)])
    with pyarrow.parquet.ParquetWriter(made, schema) as writer:
        for i, file in enumerate(files):
            flat = pyarrow.array(np.load(file).ravel())
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, width)
            chunk = pyarrow.array(texts[i * BLOCK : (i + 1) * BLOCK], pyarrow.string())
            writer.write_table(pyarrow.Table.from_arrays([chunk, vectors], schema=schema))
