"""Train, measure and pack a released model, in stages; a stopped command skips finished ones.

python scripts/release.py english --data DIR --base_models all-MiniLM-L6-v2=DIR_OR_ID \
    paraphrase-MiniLM-L3-v2=DIR_OR_ID me5-small-zh-en-30k=DIR_OR_ID [--judge outputs/judge] \
    [--pack simbert_hf/models/simbert-minilm-en] [-- --bf16=false ...]

The sentences, pairs and test sets that RELEASES in this file names (benchmarks/README.md says what
they are) can be anywhere below DIR. To train on others, put them there under these names: they
come before those that ship in scripts/data. me5-small-zh-en-30k is not published: name
intfloat/multilingual-e5-small in its place.

Flags after -- go to every training stage: -- --max_steps=5, with an --output_dir of its own, tries
them all. (A stage that makes a teacher takes train_simcse.py's alone.) A repeated command resumes
from checkpoints, and names what it keeps; those of a finished stage are removed. A packed model's
card is written by scripts/make_card.py, as by model_cards/*/card.yaml.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers.utils import SAFE_WEIGHTS_NAME

from simbert_hf import SimBert
from simbert_hf.data import load_groups, load_scored_pairs, load_texts, split_groups
from simbert_hf.judging.judge import Judge, check_independent
from simbert_hf.training.resuming import checksum
from simbert_hf.training.saving import checkpoints_in
from simbert_hf.utils.atomic import check_writable, filled, write_text
from simbert_hf.utils.locks import alone
from simbert_hf.utils.script import run_script, script_parser

HERE = Path(__file__).parent
HELD_OUT, SEED = 500, 42
FINISHED = ("all_results.json", "README.md")  # what a run writes last
EVERY = 0.2  # of a stage, it is evaluated and a checkpoint is saved
DRAWN = 25_000  # sentences per file, among which related ones are mined


@dataclass(frozen=True)
class Stage:
    """A training run: a recipe, its length, and its files and teachers.

    With ``related``, sentences drawn from the files are paired if their cosine, by the release's
    base model, is within this range; those of ``scored`` pairs are added as they are. Paraphrases
    that are ``rated`` become preferences, and groups to train on. A stage begins from the current
    model, or from the average that ``begins`` gives: shares of the release's base model and of the
    results of earlier stages, by their recipes. What it begins from can be a teacher, too. With
    ``ends``, the stage ends in an average of these, its beginning and its result. A stage that
    ``makes_teacher`` trains the base model on scored pairs, by train_simcse.py: later stages name
    it by its recipe, and begin as without it.
    """

    recipe: str
    steps: int
    teachers: tuple[str, ...]
    train: tuple[str, ...]
    sentences: tuple[str, ...] = ()
    related: tuple[float, float] | None = None
    preferences: str | None = None
    one_way: str | None = None
    rated: tuple[str, ...] = ()
    scored: tuple[str, ...] = ()
    begins: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, float] = field(default_factory=dict)
    makes_teacher: bool = False


@dataclass(frozen=True)
class Release:
    """How a model is made from a base model, monitored during training, and measured.

    Groups of the files in ``judged`` are held out of all stages but those that make a teacher.
    Paraphrases are judged on them, or on those of ``questions``. While a stage trains, paraphrases
    of ``samples`` are shown. The base models may need a prompt before each text. With ``layers``,
    the first stage begins from the base model cut to these, and to the pieces that texts of
    ``vocabulary`` need.
    """

    start: str
    stages: tuple[Stage, ...]
    sts_dev: str
    measured: tuple[tuple[str, str, str], ...]  # flag of scripts/evaluate.py, name (or ""), file
    judged: tuple[str, ...]
    samples: tuple[str, ...]
    questions: str | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[int, ...] = ()
    vocabulary: tuple[str, ...] = ()

    def files(self) -> list[str]:
        """List the files that all stages and measurements read."""
        needed = [self.sts_dev, *self.judged, *(file for _, _, file in self.measured)]
        needed += self.vocabulary
        needed += [self.questions] if self.questions else []
        for stage in self.stages:
            needed += [*stage.train, *stage.sentences, *stage.rated, *stage.scored]
            needed += [file for file in (stage.preferences, stage.one_way) if file]
        return needed


TATOEBA_ZH = "zh_synonyms.jsonl"
PAIRS = TATOEBA, QUESTIONS = "tatoeba_en/pairs.jsonl.gz", "questions_en/pairs.jsonl.gz"
WRITTEN = ("written_en/collected.jsonl.gz", "written_en/invented.jsonl.gz")
MORE_WRITTEN = tuple(f"written_en/invented_{number}.jsonl.gz" for number in (2, 3))
RATED = tuple(f"rated_en/ratings{number}.jsonl.gz" for number in ("", "_2", "_3"))
EN, ZH = "{}/en_sentences.txt.xz", "{}/zh_sentences.txt.xz"
OPEN_EN = (EN.format("wiki"), EN.format("tatoeba"))
OPEN_ZH = (ZH.format("wiki"), ZH.format("tatoeba"))
WRITTEN_ZH = tuple(f"written_zh/{name}.jsonl.gz" for name in ("collected", "invented", "freer"))
MORE_WRITTEN_ZH = tuple(f"written_zh/invented_{number}.jsonl.gz" for number in (2, 3))
RATED_ZH = tuple(f"rated_zh/ratings{number}.jsonl.gz" for number in ("", "_2"))
GRADED_ZH = tuple(f"graded_zh/{name}.jsonl.gz" for name in ("written", "mined"))
MINILM, L3, ME5 = "all-MiniLM-L6-v2", "paraphrase-MiniLM-L3-v2", "me5-small-zh-en-30k"
ALL = (MINILM, L3, ME5)
BEGUN, MADE = "begun", "made"  # what a stage begins from, and its result
english = partial(
    Stage, teachers=(BEGUN,), train=PAIRS, sentences=(*OPEN_EN, QUESTIONS), related=(0.3, 0.9)
)
chinese = partial(Stage, sentences=(*OPEN_ZH, OPEN_EN[1]), related=(0.84, 0.97))
chinese_small = partial(
    Stage,
    teachers=(ME5,),
    train=(*WRITTEN_ZH, *MORE_WRITTEN_ZH, TATOEBA_ZH),
    sentences=(*OPEN_ZH, *WRITTEN_ZH[:2], MORE_WRITTEN_ZH[0]),
    related=(0.84, 0.97),
)
MEASURED_ZH = (
    ("sts", "STS-B zh", "stsb-zh-test.csv"),
    ("sts", "LCQMC", "LCQMC-test.txt"),
    ("sts", "BQ", "BQ_corpus-test.csv"),
    ("sts", "PAWS-X", "PAWS-X-test_2k.tsv"),
)
SAMPLES_ZH = (
    "怎么重置密码？",
    "今天天气真好。",
    "微信和支付宝哪个好？",
    "怎么关闭花呗？",
    "我听不懂你在说什么。",
)
RELEASES = {
    "english": Release(
        MINILM,
        (
            Stage("minilm_tatoeba", 1043, (MINILM,), (TATOEBA,)),
            Stage("english", 1400, ALL, PAIRS, OPEN_EN),
            Stage("english_polish", 450, ALL, PAIRS, OPEN_EN),
            english("english_related", 1300, teachers=(*ALL, ME5)),
            english(
                "english_average",
                1500,
                teachers=(BEGUN, *ALL, ME5),
                begins={"english_related": 0.6, MINILM: 0.4},
            ),
            english("english_anchored", 1500, begins={"english_average": 0.7, MINILM: 0.3}),
            english("english_preferences", 400, preferences="preferences_en/preferences.jsonl.gz"),
            english("english_one_way", 2000, one_way="one_way_en/pairs.jsonl.gz"),
            english("english_written", 1400, train=WRITTEN, ends={MADE: 0.8, BEGUN: 0.2}),
            english(
                "english_rated_1",
                300,
                teachers=(*ALL, ME5),
                train=WRITTEN,
                rated=RATED[:1],
                ends={MADE: 0.5, BEGUN: 0.5},
            ),
            english(
                "english_rated_2",
                450,
                teachers=(*ALL, ME5),
                train=(*WRITTEN, MORE_WRITTEN[0]),
                rated=RATED[:2],
            ),
            english(
                "english_rated_3",
                200,
                train=(*WRITTEN, MORE_WRITTEN[0]),
                rated=RATED[:2],
                begins={"english_rated_2": 0.8, MINILM: 0.2},
            ),
            english(
                "english_rated_4",
                750,
                train=(*WRITTEN, *MORE_WRITTEN),
                rated=RATED,
                begins={"english_rated_3": 0.6, "english_written": 0.3, MINILM: 0.1},
                ends={MADE: 0.7, "english_written": 0.3},
            ),
        ),
        "stsb-en-dev.csv",
        (
            ("sts", "STS-B", "stsb-en-test.csv"),
            ("sts", "", "sts12_16"),
            ("retrieval", "Banking77", "banking77/test.csv"),
            ("retrieval", "CLINC150", "clinc150/test.csv"),
        ),
        PAIRS,
        (
            "how can i reset my password?",
            "the weather is really nice today.",
            "i don't know what you mean.",
            "where can i buy a ticket?",
            "my card was declined, what should i do?",
        ),
        "questions_en/test_questions.jsonl",
        {ME5: "query: "},
    ),
    "chinese": Release(
        ME5,
        (
            chinese("chinese", 1000, (ME5,), (*WRITTEN_ZH, TATOEBA_ZH, *WRITTEN)),
            chinese("chinese_related", 400, (ME5,), (*WRITTEN_ZH, TATOEBA_ZH, WRITTEN[1])),
        ),
        "stsb-zh-dev.csv",
        (*MEASURED_ZH, ("sts", "STS-B en", "stsb-en-test.csv")),
        WRITTEN_ZH[:2],
        SAMPLES_ZH,
        "written_zh/test.jsonl",
        {ME5: "query: "},
    ),
    "chinese_small": Release(
        ME5,
        (
            chinese_small("chinese_small", 3600),
            Stage(
                "chinese_graded",
                377,
                teachers=(),
                train=GRADED_ZH,
                ends={ME5: 0.5, MADE: 0.5},
                makes_teacher=True,
            ),
            chinese_small(
                "chinese_small_end",
                600,
                teachers=("chinese_graded",),
                rated=RATED_ZH,
                scored=GRADED_ZH[:1],
            ),
        ),
        "stsb-zh-dev.csv",
        MEASURED_ZH,
        WRITTEN_ZH[:2],
        SAMPLES_ZH,
        "written_zh/test.jsonl",
        {ME5: "query: "},
        layers=(0, 1, 3, 4, 6, 7, 9, 11),
        vocabulary=(*OPEN_ZH, *WRITTEN_ZH),
    ),
}


def find(data: Path, pattern: str) -> str:
    """Find a file below the data folder, or below the shipped data."""
    return find_all(data, [pattern])[0]


def find_all(data: Path, patterns: Sequence[str]) -> list[str]:
    """Find a file for each pattern; exit with the names of all that are missing, if any."""
    roots = (data, HERE / "data")  # the user's own come before the shipped ones
    paths = [
        [str(path) for root in roots for path in sorted(root.rglob(each))] for each in patterns
    ]
    if missing := dict.fromkeys(each for each, of in zip(patterns, paths, strict=True) if not of):
        sys.exit(
            f"There is no {', no '.join(missing)} below {data}: benchmarks/README.md says what "
            "they are and where to get them."
        )
    return [of[0] for of in paths]


def in_scope(file: str, folder: Path) -> str:
    """Return a copy of a file of intents without out-of-scope queries, if it has any."""
    lines = Path(file).read_text(encoding="utf-8").splitlines() if file.endswith(".csv") else []
    kept = [line for line in lines if not line.endswith(",oos")]
    if len(kept) == len(lines):
        return file
    copy = folder / f"in-scope-{Path(file).name}"
    write_text(copy, "\n".join(kept))
    return str(copy)


def run(script: str, *flags: str) -> None:
    """Run one of the scripts; exit with an error if it fails."""
    print("+", script, *flags, flush=True)
    code = subprocess.run([sys.executable, HERE / script, *flags], check=False).returncode
    if code:
        sys.exit(f"{script} ended with {code}; run this command again to resume.")


def hold_out(release: Release, args: argparse.Namespace) -> Path:
    """Write the groups that no stage but a teacher's trains on, once; return their file."""
    path = args.output_dir / f"{args.name}-held-out.jsonl"
    if not path.exists():
        groups: Any = load_groups(find_all(args.data, release.judged))[0]
        rows = [
            json.dumps({"text": text, "synonyms": others}, ensure_ascii=False)
            for text, *others in split_groups(groups, HELD_OUT, SEED)[1]["texts"]
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "\n".join(rows))
    return path


def mine(stage: Stage, start: str, held_out: Path, args: argparse.Namespace) -> str:
    """Write pairs of related sentences from draws of a stage's files; return their file.

    Its name tells what they are made of, so they are mined once, and anew from other data.
    """
    files = find_all(args.data, stage.sentences)
    made_of = checksum([*files, str(held_out)], repr((start, stage.sentences, stage.related)))
    drawn, related = (
        args.output_dir / f"{args.name}-{what}-{made_of:08x}.txt" for what in ("drawn", "related")
    )
    if not related.exists():
        hidden, texts = set(load_texts(held_out)), []
        for file in files:
            known = sorted(set(load_texts(file)) - hidden)
            texts += Random(SEED).sample(known, min(DRAWN, len(known)))
        write_text(drawn, "\n".join(texts))
        lowest, highest = stage.related
        run("mine_pairs.py", f"--model_name_or_path={start}", f"--sentences_file={drawn}",
            f"--min_similarity={lowest}", f"--max_similarity={highest}", "--max_group_size=2",
            "--vectors_only", f"--output_file={related}")  # fmt: skip
    return str(related)


def drop_scores(stage: Stage, args: argparse.Namespace) -> str:
    """Write the sentences of a stage's scored pairs, two and two; return their file."""
    pairs = [pair for file in find_all(args.data, stage.scored) for pair in load_scored_pairs(file)]
    path = args.output_dir / f"{args.name}-{stage.recipe}-pairs.txt"
    write_text(path, "\n".join(f"{pair.first}\n{pair.second}" for pair in pairs))
    return str(path)


def prefer(stage: Stage, args: argparse.Namespace) -> Path:
    """Make preferences and groups from rated paraphrases; return their folder."""
    folder = args.output_dir / f"{args.name}-{stage.recipe}-rated"
    run("data/prepare_rated.py", *find_all(args.data, stage.rated), str(folder))
    return folder


def average(shares: Mapping[str, float], models: Mapping[str, str], out: str) -> None:
    """Average some of the models, replacing an earlier average."""
    shutil.rmtree(out, ignore_errors=True)
    names = [models[name] for name in shares]
    run("average_models.py", "--models", *names, "--weights", *map(str, shares.values()),
        f"--output_dir={out}")  # fmt: skip


def cut(release: Release, start: str, args: argparse.Namespace) -> str:
    """Cut the base model, once; return its folder."""
    out = args.output_dir / f"{args.name}-cut"
    if not out.exists():
        run("cut_model.py", f"--model_name_or_path={start}", f"--output_dir={out}",
            "--layers", *map(str, release.layers),
            "--text_files", *find_all(args.data, release.vocabulary))  # fmt: skip
    return str(out)


def train_stage(
    release: Release,
    stage: Stage,
    models: dict[str, str],
    out: Path,
    held_out: Path,
    args: argparse.Namespace,
) -> None:
    """Train one stage from ``models[BEGUN]``; its teachers are among them."""
    given = find_all(args.data, stage.train)
    preferences = [find(args.data, stage.preferences)] if stage.preferences else []
    if stage.rated:
        rated = prefer(stage, args)
        given.append(str(rated / "groups.jsonl.gz"))
        preferences.append(str(rated / "preferences.jsonl.gz"))
    flags = [f"--model_name_or_path={models[BEGUN]}", f"--output_dir={out}", "--train_file", *given]
    if stage.teachers:
        flags += ["--teacher_name_or_path", *(models[name] for name in stage.teachers)]
    if stage.related:
        sentences = [mine(stage, models[release.start], held_out, args)]
    else:
        sentences = find_all(args.data, stage.sentences)
    if stage.scored:
        sentences.append(drop_scores(stage, args))
    if sentences:
        flags += ["--sentences_file", *sentences]
    if preferences:
        flags += ["--preferences_file", *preferences]
    if stage.one_way:
        flags += ["--one_way_file", find(args.data, stage.one_way)]
    flags += [f"--max_steps={stage.steps}", f"--sts_file={find(args.data, release.sts_dev)}"]
    if not stage.makes_teacher:
        flags += [f"--validation_file={held_out}", "--sample_sentences", *release.samples]
    for what in ("save", "eval"):  # an epoch is longer than most stages
        flags += [f"--{what}_strategy=steps", f"--{what}_steps={EVERY}"]
    flags += ["--resume_from_checkpoint=true", *args.flags]
    script = "train_simcse.py" if stage.makes_teacher else "train_simbert.py"
    run(script, str(HERE / "recipes" / f"{stage.recipe}.yaml"), *flags)


def train(
    release: Release, args: argparse.Namespace, bases: dict[str, str], held_out: Path
) -> Path:
    """Train every unfinished stage; return the folder of the last one, or of its average."""
    models, path = dict(bases), bases[release.start]
    if release.layers:
        path = cut(release, path, args)
    for number, stage in enumerate(release.stages):
        out = args.output_dir / f"{args.name}-{number + 1}-{stage.recipe}"
        first = bases[release.start] if stage.makes_teacher else path
        begun, averaged = f"{out}-start" if stage.begins else first, f"{out}-average"
        if all((out / name).exists() for name in FINISHED):
            print(f"{out} is finished; to train it again, remove it.", flush=True)
        else:
            for stale in (averaged, f"{averaged}-evaluation", f"{out}-evaluation"):
                shutil.rmtree(stale, ignore_errors=True)  # of a stage that was removed
            if stage.begins:
                average(stage.begins, models, begun)
            train_stage(release, stage, models | {BEGUN: begun}, out, held_out, args)
        for checkpoint in checkpoints_in(out).values():  # whose optimizer states take gigabytes
            shutil.rmtree(checkpoint)
        made = str(out)
        if stage.ends:
            if not Path(averaged, SAFE_WEIGHTS_NAME).exists():  # written last
                average(stage.ends, models | {BEGUN: begun, MADE: made}, averaged)
            made = averaged
        models[stage.recipe] = made
        path = path if stage.makes_teacher else made
    return Path(path)


def measure(
    release: Release, model: Path, args: argparse.Namespace, bases: dict[str, str], held_out: Path
) -> None:
    """Write the tables of embeddings and of paraphrases beside the model."""
    out = args.output_dir / f"{model.name}-evaluation"
    if (out / "table.md").exists():  # written last
        print(f"{out} is finished; to measure again, remove it.", flush=True)
    else:
        flags = ["--models", f"{args.name}={model}", *(f"{k}={v}" for k, v in bases.items())]
        flags += ["--prompts", "", *(release.prompts.get(name, "") for name in bases)]
        for flag in dict.fromkeys(kind for kind, _, _ in release.measured):
            flags.append(f"--{flag}")
            for kind, name, pattern in release.measured:
                if kind == flag:
                    file = in_scope(find(args.data, pattern), args.output_dir)
                    flags.append(f"{name}={file}" if name else file)
        run("evaluate.py", *flags, f"--output_dir={out}")
    paraphrases = out / f"judged-by-{args.judge.name}" if args.judge else out
    if not (paraphrases / "paraphrases.json").exists():
        judge = [f"--judge={args.judge}", "--related_models", *bases.values()] if args.judge else []
        judge += ["--allow_related_judge"] if args.allow_related_judge else []
        groups = find(args.data, release.questions) if release.questions else held_out
        run("evaluate_paraphrases.py", *judge, "--models", f"{args.name}={model}",
            f"--groups={groups}", "--all_groups", "--limit=200",
            f"--output_dir={paraphrases}")  # fmt: skip


def pack(model: Path, target: Path) -> None:
    """Write a model in half precision; every loader reads it in float32, with BERT's dropout."""
    packed = SimBert.from_pretrained(model).to(torch.float16)
    packed.config.hidden_dropout_prob = packed.config.attention_probs_dropout_prob = 0.1
    with filled(target) as made:
        packed.save_pretrained(made)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1e6:.1f} MB")


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is not finished yet."""
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("name", choices=sorted(RELEASES))
    add("--data", type=Path, required=True, help="where the files are")
    add("--base_models", nargs="+", required=True, metavar="NAME=DIR_OR_ID")
    add("--stages", type=int, metavar="N", help="train only the first N stages")
    add("--output_dir", type=Path, default=Path("outputs/release"))
    add("--judge", type=Path, help="directory that scripts/train_judge.py wrote")
    add(
        "--allow_related_judge",
        action="store_true",
        help="allow a judge related to a teacher; print so",
    )
    add("--pack", type=Path, help="where to save the model in half precision")
    given = sys.argv[1:] if argv is None else list(argv)
    cut = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:cut], argparse.Namespace(flags=given[cut + 1 :]))
    if unnamed := [item for item in args.base_models if "=" not in item]:
        parser.error(f"--base_models {unnamed[0]}: write NAME=DIR_OR_ID")
    if args.allow_related_judge and not args.judge:
        parser.error("--allow_related_judge needs a judge; give --judge")
    release, bases = RELEASES[args.name], dict(item.split("=", 1) for item in args.base_models)
    release = replace(release, stages=release.stages[: args.stages])
    find_all(args.data, release.files())  # report missing ones first
    teachers = {name for stage in release.stages for name in stage.teachers}
    wanted = {release.start, *teachers} - {BEGUN, *(stage.recipe for stage in release.stages)}
    if missing := sorted(wanted - set(bases)):
        parser.error(f"--base_models lacks {', '.join(missing)}")
    if args.pack:  # hours of training later
        check_writable(args.pack / "config.json")
    if args.judge:  # refuse a related judge before hours of training
        judge = Judge.load(args.judge)
        for name in sorted(wanted):
            check_independent(judge, bases[name], name, args.allow_related_judge)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    lock = args.output_dir / f"{args.name}.lock"
    with alone(lock, args.output_dir) as free:
        if not free:
            parser.error(f"another process makes this release in {args.output_dir}: wait for it")
        held_out = hold_out(release, args)
        model = train(release, args, bases, held_out)
        measure(release, model, args, bases, held_out)
        if args.pack:
            pack(model, args.pack)


if __name__ == "__main__":
    run_script(main)
