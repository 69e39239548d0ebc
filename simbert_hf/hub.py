"""Upload to the Hub: all files of a model, and no others, in one commit."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from json import JSONDecodeError
from pathlib import Path
from typing import ParamSpec, TypeVar

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from simbert_hf import __version__
from simbert_hf.modeling.graphs import check_graphs
from simbert_hf.modeling.loading import damage
from simbert_hf.utils.textfiles import read_json

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

WHOLE, INDEX, SHARDS = "model.safetensors", "model.safetensors.index.json", "model-*.safetensors"
WEIGHTS = (WHOLE, INDEX)
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")  # the last: SentencePiece
# Loaders read these together: a previous model's are deleted in the commit that brings others.
MODEL_FILES = (
    *WEIGHTS,
    SHARDS,
    "config.json",
    "generation_config.json",
    *VOCABULARIES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "[0-9]*_*/config.json",
    "[0-9]*_*/model.safetensors",
    "onnx/*.onnx",
    "onnx/*.json",
)
SIDE_FILES = (
    "README.md",
    "LICENSE*",
    "NOTICE*",
    "*.png",
    "all_results.json",
    "eval_results.json",
    "judge.json",
)
# Never uploaded (the first are pickles), but deleted where they belong to a previous model.
FOREIGN = ("pytorch_model*", "[0-9]*_*/pytorch_model.bin", "onnx/*", "openvino/*")
CARD = "README.md"
TRIES = 3  # of a commit, if others arrive at the same time, and of a call that the Hub puts off
LONGEST = 300  # seconds that a call waits, if the Hub asks for it: the window of its limits
# What a card's code loads:
LOADED = re.compile(r'(?:(?<=from_pretrained\(")|(?<=SentenceTransformer\("))[^"]+(?=")')


@dataclass(frozen=True)
class Plan:
    """The files of a folder that go to the Hub.

    Attributes:
        folder: Where the files are.
        files: Size of each file in bytes, by its name in the repository.
        left: Files and folders of the folder that are not uploaded.
        loads: What the code of a generated card loads; once uploaded, it loads the repository.
    """

    folder: Path
    files: Mapping[str, int]
    left: Sequence[str] = ()
    loads: str = ""

    def __str__(self) -> str:
        """List the files and their sizes, and what is not uploaded."""
        total = sum(self.files.values())
        lines = [f"{size:>13,}  {name}" for name, size in self.files.items()]
        lines.append(f"{total:>13,}  bytes in {len(self.files)} files")
        if self.left:
            lines.append(f"not uploaded: {', '.join(self.left)}")
        if CARD not in self.files:
            lines.append(f"there is no {CARD}, the model's card: scripts/make_card.py writes one")
        if self.loads:
            lines.append(f"the code in {CARD} will load the repository instead of {self.loads!r}")
        return "\n".join(lines)


def plan_upload(folder: str | Path) -> Plan:
    """Find the files of a saved model: what loaders read, its card, licence, figures and results.

    Checkpoints, logs, data, pickles (``training_args.bin``) and the remains of a previous model are
    left out.

    Args:
        folder: Directory that ``save_pretrained`` or a training run wrote.

    Raises:
        ValueError: If it holds no complete model in safetensors, no tokenizer, or ONNX graphs of
            another model.

    Example:
        >>> from simbert_hf import CharGru
        >>> folder = getfixture("tmp_path")
        >>> CharGru.for_texts(["a cat sat"], min_count=1).save_pretrained(folder)
        >>> (folder / "training_args.bin").write_bytes(b"a pickle")
        8
        >>> plan = plan_upload(folder)
        >>> sorted(plan.files), plan.left
        (['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'],
         ['training_args.bin'])
    """
    folder = Path(folder)
    names = sorted(p.relative_to(folder).as_posix() for p in folder.glob("**/*") if p.is_file())
    shards, modules = shards_of(folder), modules_of(folder)
    read = [name for name in names if not is_former(name, shards, modules)]
    chosen = [name for name in read if matches(name, MODEL_FILES + SIDE_FILES)]
    check_whole(folder, read, chosen)
    if lost := sorted(shards - set(chosen)):
        raise ValueError(f"{folder / INDEX} names {lost[0]}, which is missing: save it again.")
    check_graphs(folder)
    tops = {name.split("/")[0] for name in chosen}
    split = [(name, *name.partition("/")[:2]) for name in names if name not in chosen]
    left = dict.fromkeys(name if top in tops else top + slash for name, top, slash in split)
    sizes = {name: (folder / name).stat().st_size for name in chosen}
    return Plan(folder, sizes, list(left), loaded_by_card(folder / CARD))


def loaded_by_card(path: Path) -> str:
    """Find the name that the code of a generated card loads; empty if there is none."""
    from simbert_hf.cards import MARK  # imports the evaluations

    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = LOADED.search(text) if MARK in text else None
    return found[0] if found else ""


def upload_of(plan: Plan, name: str, repo_id: str) -> CommitOperationAdd:
    """Add a file to a commit; a generated card is changed to load the repository."""
    path = plan.folder / name
    if name != CARD or not plan.loads:
        return CommitOperationAdd(name, path)
    text = path.read_text(encoding="utf-8")
    card = LOADED.sub(lambda found: repo_id if found[0] == plan.loads else found[0], text)
    return CommitOperationAdd(name, card.encode())


def shards_of(folder: Path) -> set[str]:
    """Name the shards of the weights; none if there is a single file, which loaders prefer."""
    if (folder / WHOLE).exists() or not (folder / INDEX).exists():
        return set()
    return set(read_json(folder / INDEX).get("weight_map", {}).values())


def modules_of(folder: Path) -> set[str]:
    """Name the folders of a model's modules; raise a ValueError if their list is damaged."""
    path = folder / "modules.json"
    try:
        return {module["path"] for module in json.loads(path.read_text(encoding="utf-8"))}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): save the model again.") from error


def is_former(name: str, shards: Collection[str], modules: Collection[str]) -> bool:
    """Tell whether a file remains of a previous model, given the current shards and modules.

    Example:
        >>> is_former("2_Dense/config.json", [], ["1_Pooling"]), is_former("config.json", [], [])
        (True, False)
    """
    top, inside, _ = name.partition("/")
    if inside:
        return matches(top, ("[0-9]*_*",)) and top not in modules
    return name not in shards and matches(name, (SHARDS,) if shards else (SHARDS, INDEX))


def check_whole(folder: Path, names: Sequence[str], chosen: Sequence[str]) -> None:
    """Raise a ValueError if a part of the model is missing, damaged or only in a pickle."""
    needed = {
        "config.json": ("config.json",),
        "tokenizer_config.json": ("tokenizer_config.json",),
        "vocabulary": VOCABULARIES,
        "weights in safetensors": WEIGHTS,
    }
    for what, any_of in needed.items():
        if not any(matches(name, any_of) for name in chosen):
            raise ValueError(
                f"{folder} has no {what}; give a folder that save_pretrained or a training run "
                "wrote."
            )
    for name in chosen:
        if fault := damage(folder / name):
            raise ValueError(f"{folder / name} is damaged ({fault}): save or copy it again.")
    for name in names:
        module, _, file = name.rpartition("/")
        pickled = matches(module, ("[0-9]*_*",)) and file == "pytorch_model.bin"
        if pickled and f"{module}/model.safetensors" not in chosen:
            raise ValueError(
                f"{folder / name} is a pickle, which is not uploaded, and nothing else holds its "
                "contents: load and save the model again."
            )


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Tell whether a path matches one of the patterns, in which stars do not match slashes.

    Example:
        >>> matches("1_Pooling/config.json", ["[0-9]*_*/config.json"]), matches("a/b.md", ["*.md"])
        (True, False)
    """
    parts = name.split("/")
    split = (pattern.split("/") for pattern in patterns)
    return any(
        len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted)) for wanted in split
    )


def push(
    plan: Plan,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    commit_message: str = "Upload model",
    keep_card: bool = False,
) -> CommitInfo:
    """Upload a plan in one commit, which also deletes files of a previous model.

    A single commit is all or nothing (``HfApi.upload_folder`` may make several). Large files are
    sent before it, through Xet if ``hf_xet`` is installed and ``HF_HUB_DISABLE_XET`` is not set,
    else through LFS; nobody sees them until the commit. So a failed upload changes nothing that
    others load, and can be repeated by the same call, which sends only what the Hub still lacks.
    If another commit arrives meanwhile, this one is made again on top of it: never a mixture. If
    the Hub asks for fewer calls, each waits up to five minutes, at most twice.

    Args:
        plan: What to upload.
        repo_id: ``org/name``; a bare name belongs to the token's owner. It is created if needed.
        private: Make it private; None for the owner's default.
        revision: Branch, created from main if needed; main if None.
        token: Hub token; the stored one if None.
        commit_message: First line of the commit's message.
        keep_card: Keep the repository's ``README.md``, if it has one.

    Returns:
        The commit; its ``oid`` can be given as the revision when loading.

    Raises:
        OSError: If the upload fails; then nothing is published.
        ValueError: If the name is not valid, or the repository is public and ``private`` is set.
    """
    api = hub_api(token)
    repo_id = open_repository(repo_id, private=private, revision=revision, token=token)
    with explained(repo_id):
        for left in reversed(range(TRIES)):
            head = str(patiently(api.model_info, repo_id, revision=revision).sha)
            there = patiently(api.list_repo_files, repo_id, revision=head)
            stale = [f for f in there if matches(f, MODEL_FILES + FOREIGN) and f not in plan.files]
            kept = {CARD} & set(there) if keep_card else set()
            deleted = map(CommitOperationDelete, stale)
            added = (upload_of(plan, f, repo_id) for f in plan.files if f not in kept)
            operations = [*chain[CommitOperationAdd | CommitOperationDelete](deleted, added)]
            try:
                return patiently(
                    api.create_commit, repo_id, operations, commit_message=commit_message,
                    revision=revision, parent_commit=head,
                )  # fmt: skip
            except Exception:  # or it is our own commit, of which the Hub's answer was lost
                if not left or patiently(api.model_info, repo_id, revision=revision).sha == head:
                    raise
    raise AssertionError  # the last try returns or raises


def open_repository(
    repo_id: str, *, private: bool | None, revision: str | None, token: str | bool | None
) -> str:
    """Create the repository and the branch, if they do not exist.

    Returns:
        Full name of the repository.

    Raises:
        OSError: If the Hub refuses.
        ValueError: If the name is not valid, or the repository is public and ``private`` is set.
    """
    api = hub_api(token)
    with explained(repo_id):
        repo_id = patiently(api.create_repo, repo_id, private=private, exist_ok=True).repo_id
        # An existing repository stays public, whatever ``private`` says
        public = bool(private) and not patiently(api.model_info, repo_id).private
    if public:
        raise ValueError(
            f"{repo_id} exists and is public, so nothing was uploaded: make it private in its "
            "settings, name another, or leave out private."
        )
    with explained(repo_id):
        if revision not in (None, "main") and not str(revision).startswith("refs/"):
            patiently(api.create_branch, repo_id, branch=str(revision), exist_ok=True)
    return repo_id


def hub_api(token: str | bool | None) -> HfApi:
    """Return the Hub's API, with the name of this package as the caller's."""
    return HfApi(token=token, library_name="simbert_hf", library_version=__version__)


def patiently(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the Hub; if it asks for fewer calls (HTTP 429), wait as long as it says, and repeat.

    ``huggingface_hub`` does so itself for files, and newer versions for lists of them.
    """
    for left in reversed(range(TRIES)):
        try:
            return call(*args, **kwargs)
        except HfHubHTTPError as error:
            headers = error.response.headers
            limit, wait = parse_ratelimit_headers(headers), 1
            if (after := headers.get("Retry-After", "")).isdecimal():
                wait = int(after)
            elif limit and not limit.remaining:  # a limit is told in every answer
                wait = limit.reset_in_seconds
            if error.response.status_code != 429 or not left or wait > LONGEST:
                raise
            logger.warning("The Hub asks for fewer calls: trying again in %s s.", wait + 1)
            time.sleep(wait + 1)
    raise AssertionError  # the last try returns or raises


@contextmanager
def explained(repo_id: str) -> Iterator[None]:
    """Turn the errors of an upload (HTTP, LFS and Xet) into one sentence."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and not isinstance(error, OSError | JSONDecodeError):
            raise  # a name or a card that is not valid; the others are the Hub's answers
        cause = (isinstance(error, RuntimeError) and error.__cause__) or error  # which file, or why
        raise OSError(
            f"Uploading to {repo_id} failed: {' '.join(str(cause).split()).rstrip('.')}. Nothing "
            "was published; check the name, token and network, and try again."
        ) from error
