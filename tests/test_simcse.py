"""SimCSE's training script from end to end, on a tiny model and a few sentences."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM

from scripts.train_simbert import main as train_simbert
from scripts.train_simcse import main
from simbert_hf import SimBert
from simbert_hf.arguments import DataArguments, ModelArguments, SimilarityTrainingArguments
from simbert_hf.data import DataError, FixedPairs
from simbert_hf.modeling.whitening import whiten
from simbert_hf.objectives import ScoredPairObjective, SimCseObjective
from simbert_hf.training.simcse import (
    SIMCSE_PRESETS,
    SimCseArguments,
    check_dropout,
    make_augmentation,
    make_simcse_objective,
    prepare_simcse,
    read_columns,
)
from simbert_hf.utils.parsing import parse_arguments
from tests.tiny import WORDS, assert_resumes, lines_with, losses_of, save_tiny_simbert, tiny_simbert

TEXTS = [f"{a} {b} cat" for a in WORDS[:8] for b in WORDS[8:14]]
TYPES = (ModelArguments, DataArguments, SimCseArguments, SimilarityTrainingArguments)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A checkpoint with an LM head."""
    save_tiny_simbert(tmp_path / "start")
    return tmp_path / "start"


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.fixture
def sts(tmp_path: Path) -> Path:
    path = tmp_path / "sts.tsv"
    rows = [f"{a}\t{b}\t{i % 6}" for i, (a, b) in enumerate(pairwise(TEXTS))]
    path.write_text("\n".join(rows))
    return path


def flags(start: Path, data: Path, out: Path, *more: str) -> list[str]:
    return [
        f"--model_name_or_path={start}", f"--train_file={data}", f"--output_dir={out}",
        "--per_device_train_batch_size=8", "--use_cpu", "--max_steps=8",
        "--eval_strategy=steps", "--eval_steps=4", "--save_strategy=steps", "--save_steps=4",
        "--logging_steps=1", "--learning_rate=3e-3", "--hidden_dropout=0.2",
        "--report_to=none", "--disable_tqdm=true", *more,
    ]  # fmt: skip


def test_trains_without_labels_keeps_the_best_and_drops_the_head(
    start: Path, sentences: Path, sts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = (f"--sts_file={sts}", "--training_head=true", "--pooling=cls", "--max_steps=48")
    more += ("--hidden_dropout=0.05", "--save_total_limit=99", "--eval_steps=8", "--save_steps=8")
    trainer = main(flags(start, sentences, out, *more))
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.6 * sum(losses[:4])
    figures = lines_with("eval_sts_spearman", trainer)[:-1]
    best = max(figures, key=lambda line: line["eval_sts_spearman"])
    assert (
        trainer.state.best_metric
        == best["eval_sts_spearman"]
        > min(line["eval_sts_spearman"] for line in figures)
    )
    checkpoint = load_file(out / f"checkpoint-{best['step']}" / "model.safetensors")
    saved = load_file(out / "model.safetensors")
    head = {"training_head.0.weight", "training_head.0.bias"}  # which a resume needs
    assert set(checkpoint) == set(saved) | head
    assert all(torch.equal(saved[name], checkpoint[name]) for name in saved)

    texts = ["a cat", "the dog ran"]
    vectors = SimBert.from_pretrained(out).encode(texts)
    theirs = SentenceTransformer(str(out), device="cpu").encode(texts)
    assert abs(vectors - theirs).max() < 1e-5
    rows = SimBert.from_pretrained(out).rows
    hidden = AutoModel.from_pretrained(out)(**rows.pad(rows.sources(texts, 32))).last_hidden_state
    cls = torch.nn.functional.normalize(hidden[:, 0], dim=-1)
    assert abs(cls.detach().numpy() - vectors).max() < 1e-5


def test_the_lm_head_survives_bit_for_bit(start: Path, sentences: Path, tmp_path: Path) -> None:
    main(flags(start, sentences, tmp_path / "out", "--save_strategy=no"))
    before, after = (
        load_file(folder / "model.safetensors") for folder in (start, tmp_path / "out")
    )
    head = [name for name in before if name.startswith("cls.")]
    assert len(head) == 5  # transform (4) and bias; the decoder is the embeddings, which train
    assert all(torch.equal(before[name], after[name]) for name in head)
    embeddings = "bert.embeddings.word_embeddings.weight"
    assert not torch.equal(before[embeddings], after[embeddings])
    masked = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert torch.equal(masked.cls.predictions.decoder.weight, after[embeddings])
    assert SimBert.from_pretrained(tmp_path / "out").has_lm_head


def test_an_encoder_without_lm_head_stays_without(sentences: Path, tmp_path: Path) -> None:
    model = tiny_simbert()
    model.has_lm_head = False
    model.save_pretrained(tmp_path / "start")
    more = ("--max_steps=2", "--save_strategy=no")
    main(flags(tmp_path / "start", sentences, tmp_path / "plain", *more))
    assert not SimBert.from_pretrained(tmp_path / "plain").has_lm_head
    given = flags(tmp_path / "start", sentences, tmp_path / "mlm", "--mlm_weight=0.5", *more)
    trainer = main(given)
    line = lines_with("mlm", trainer)[0]
    assert line["loss"] == pytest.approx(line["similarity"] + 0.5 * line["mlm"], rel=1e-4)
    assert SimBert.from_pretrained(tmp_path / "mlm").has_lm_head


@pytest.mark.parametrize(
    ("examples", "more"),
    [
        ("pairs", ()),
        ("triplets", ("--hard_negative_weight=0.5", "--pooling=tanh_pooler")),
        ("scored", ()),
        ("scored", ("--loss=angle",)),
    ],
)
def test_trains_on_labels(
    examples: str, more: tuple[str, ...], start: Path, tmp_path: Path
) -> None:
    header = {"pairs": "sent0,sent1", "triplets": "sent0,sent1,hard_neg",
              "scored": "sentence1,sentence2,score"}[examples]  # fmt: skip
    third = {"pairs": "", "triplets": ",the dog ran", "scored": ",{}"}[examples]
    rows = [f"{text},{text} please" + third.format(i % 4) for i, text in enumerate(TEXTS)]
    path = tmp_path / "train.csv"
    path.write_text("\n".join([header, *rows]))
    out = tmp_path / "out"
    more = (*more, f"--examples={examples}", "--max_steps=24", "--hidden_dropout=0",
            "--save_strategy=no")  # fmt: skip
    losses = losses_of(main(flags(start, path, out, *more)))
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
    theirs = SentenceTransformer(str(out), device="cpu").encode(["a cat"])
    assert abs(SimBert.from_pretrained(out).encode(["a cat"]) - theirs).max() < 1e-5


def test_mlm_alone_trains_a_language_model_and_measures_its_vectors(
    sentences: Path, sts: Path, tmp_path: Path
) -> None:
    model = tiny_simbert("linear_pooler")
    model.has_lm_head = False
    model.save_pretrained(tmp_path / "start")
    more = (f"--sts_file={sts}", "--similarity_weight=0", "--mlm_weight=1", "--max_steps=24",
            "--save_strategy=no")  # fmt: skip
    trainer = main(flags(tmp_path / "start", sentences, tmp_path / "out", *more))
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    assert not any("similarity" in line for line in trainer.state.log_history)
    assert len(lines_with("eval_sts_spearman", trainer)) > 1
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    assert all(p.grad is not None or p in trainer.optimizer.state for p in trained)
    assert SimBert.from_pretrained(tmp_path / "out").has_lm_head


def test_words_are_replaced_by_near_ones(start: Path, sentences: Path, tmp_path: Path) -> None:
    more = ("--augmentation=replace", "--augmentation_rate=0.5", "--save_strategy=no")
    with pytest.raises(ValueError, match="can change words in only 0 of 48 sentences"):
        main(flags(start, sentences, tmp_path / "out", *more))
    model = SimBert.from_pretrained(start)
    first, second = model.tokenizer.convert_tokens_to_ids(["weather", "password"])
    table = model.get_input_embeddings().weight.data
    table[second] = 0.9 * table[first]
    model.save_pretrained(start)
    (chinese := tmp_path / "chinese.txt").write_text(
        "cat 怎么重置密码\ndog 天气真不错\n" * 8, encoding="utf-8"
    )
    with pytest.raises(
        ValueError, match="in only 0 of 16 sentences; it is for languages with spaces"
    ):
        main(flags(start, chinese, tmp_path / "out", *more))
    trainer = main(flags(start, sentences, tmp_path / "out", *more))
    assert trainer.data_collator.augmentation.synonyms == {
        "weather": ["password"], "password": ["weather"],
    }  # fmt: skip
    assert len(losses_of(trainer)) == 8


def test_joint_training_logs_both_losses(start: Path, sentences: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["sent0,sent1", *(f"{text},{text} please" for text in TEXTS)]))
    more = (f"--sentences_file={sentences}", "--simcse_weight=0.5", "--validation_groups=0")
    more += ("--eval_strategy=no", "--save_strategy=no", "--max_length=32")
    long = (*more, "--max_steps=16", "--simcse_scale=10")
    trainer = train_simbert(flags(start, pairs, tmp_path / "out", *long))
    lines = lines_with("simcse", trainer)
    first, last = lines[0], lines[-1]
    expected = first["seq2seq"] + first["similarity"] + 0.5 * first["simcse"]
    assert first["loss"] == pytest.approx(expected, rel=1e-4)
    assert last["simcse"] < first["simcse"]
    assert last["seq2seq"] < first["seq2seq"]
    once = (*more, "--max_steps=1", "--simcse_scale=20")
    other = train_simbert(flags(start, pairs, tmp_path / "other", *once))
    other = lines_with("simcse", other)[0]["simcse"]
    assert abs(other - first["simcse"]) > 1e-3


def test_what_is_rejected_becomes_unlikely(start: Path, tmp_path: Path) -> None:
    pairs, preferences = tmp_path / "pairs.csv", tmp_path / "preferences.csv"
    pairs.write_text("\n".join(["sent0,sent1", *(f"{text},{text} please" for text in TEXTS)]))
    rows = (f"{text},{text} please,go go go" for text in TEXTS)
    preferences.write_text("\n".join(["prompt,chosen,rejected", *rows]))
    given = flags(
        start, pairs, tmp_path / "out", f"--preferences_file={preferences}",
        "--preference_weight=0.5", "--similarity_weight=0",
        "--validation_groups=0", "--max_steps=24", "--max_length=32",
        "--eval_strategy=no", "--save_strategy=no",
    )  # fmt: skip
    trainer = train_simbert(given)
    lines = lines_with("preference", trainer)
    first, last = lines[0], lines[-1]
    expected = first["seq2seq"] + 0.5 * first["preference"]
    assert first["loss"] == pytest.approx(expected, rel=1e-4)
    assert last["preference"] < 0.5 * first["preference"]
    assert last["preference_accuracy"] > 0.9
    with pytest.raises(ValueError, match="whole batches: drop --gradcache_batch_size"):
        train_simbert([*given, "--gradcache_batch_size=2"])


def test_a_resumed_run_equals_an_uninterrupted_one(
    start: Path, sentences: Path, sts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path, *more: str) -> None:
        options = (f"--sts_file={sts}", "--training_head=true", "--max_steps=10", "--mlm_weight=1")
        options += ("--load_best_model_at_end=false", "--augmentation=delete")
        main(flags(start, sentences, out, *options, *more))

    assert_resumes(run, tmp_path, {9: 8}, monkeypatch)  # in the second epoch


def test_two_equal_views_are_refused(start: Path, sentences: Path, tmp_path: Path) -> None:
    still = ["--hidden_dropout=0", "--attention_dropout=0"]
    given = flags(start, sentences, tmp_path / "out", "--eval_strategy=no", *still)
    with pytest.raises(ValueError, match="two views of a sentence by dropout, but this model has"):
        main(given)
    pairs = tmp_path / "pairs.tsv"
    rows = (f"{i}\t{text} {end}\n" for i, text in enumerate(TEXTS[:20]) for end in "ab")
    pairs.write_text("".join(rows))
    joint = [
        "--max_length=32",
        f"--sentences_file={sentences}",
        f"--train_file={pairs}",
        "--simcse_weight=0.5",
    ]
    with pytest.raises(ValueError, match="two views of a sentence by dropout, but this model has"):
        train_simbert([*given, *joint])
    main([*given, "--augmentation=delete", "--max_steps=1"])


def test_the_recipe_of_graded_pairs_names_its_files() -> None:
    recipe = Path(__file__).parents[1] / "scripts/recipes/chinese_graded.yaml"
    _, data, simcse, args = parse_arguments(TYPES, [str(recipe)], SIMCSE_PRESETS)
    assert (simcse.examples, args.max_steps) == ("scored", 377)
    assert all((recipe.parents[2] / file).is_file() for file in data.train_file)


def test_the_papers_presets() -> None:
    model, data, simcse, args = parse_arguments(TYPES, ["--preset", "paper-unsup"], SIMCSE_PRESETS)
    assert (model.pooling, simcse.training_head, simcse.examples) == ("cls", True, "sentences")
    assert (simcse.loss, simcse.scale, data.max_length) == ("one_way", 20.0, 32)
    assert (args.per_device_train_batch_size, args.learning_rate) == (64, 3e-5)
    assert (args.num_train_epochs, args.eval_steps, args.save_steps) == (1, 125, 125)
    assert (args.metric_for_best_model, args.greater_is_better) == ("eval_sts_spearman", True)
    assert args.load_best_model_at_end
    epochs = ["--preset=paper-unsup", "--eval_strategy=epoch", "--save_strategy=epoch"]
    parse_arguments(TYPES, epochs, SIMCSE_PRESETS)[-1].check_steps()
    args = parse_arguments(TYPES, [*epochs, "--save_steps=9"], SIMCSE_PRESETS)[-1]
    with pytest.raises(ValueError, match=r"--save_steps 9.* would change nothing"):
        args.check_steps()
    model, data, simcse, args = parse_arguments(TYPES, ["--preset", "paper-sup"], SIMCSE_PRESETS)
    assert (model.pooling, simcse.training_head, simcse.examples) == (
        "tanh_pooler",
        False,
        "triplets",
    )
    assert (simcse.loss, simcse.scale, data.max_length) == ("one_way", 20.0, 32)
    assert (args.per_device_train_batch_size, args.learning_rate) == (512, 5e-5)
    assert args.num_train_epochs == 3


@pytest.mark.usefixtures("sts")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--train_file=nowhere.txt"], r"nowhere\.txt: is not a file"),
        (["--examples=triplets"], "hold no triplets. Name them sent0"),
        (["--examples=scored"], "neither a known header nor a scored pair"),
        (["--examples=triplets", "--loss=symmetric"], "symmetric does not fit --examples triplets"),
        (["--examples=scored", "--mlm_weight=1"], "Scored pairs have one loss"),
        (["--examples=scored", "--mask_false_negatives=false"], "scored pairs have no negatives"),
        (["--similarity_weight=0"], "and not all of them 0"),
        (["--similarity_weight=0", "--mlm_weight=1", "--training_head=true"], "makes no views"),
        (["--model_name_or_path=DIR/white"], "is whitened, which training would undo"),
        (["--examples=pairs", "--augmentation=crop"], "needs --examples sentences"),
        (["--hard_negative_weight=1"], "needs --examples triplets"),
        (["--hard_negative_weight=nan", "--examples=triplets"], "nan: give a number"),
        (["--model_name_or_path="], "give --model_name_or_path"),
        (["--max_length=65"], "--max_length 65 is out of range.* 3 to 64"),
        (["--metric_for_best_model=top1", "--sts_file=DIR/sts.tsv"], "top1 is not measured"),
        (["--streaming=true"], "--streaming True would change nothing, as SimCSE reads"),
        (
            ["--validation_groups=5", "--text_columns", "a", "b"],
            r"--text_columns \['a', 'b'\] would change nothing",
        ),
        (["--mlm_weight=-1"], "must be at least 0"),
        (["--scale=0"], "--scale 0.0"),
        (["--augmentation=crop", "--augmentation_rate=1"], "a rate in .0, 1"),
        (["--augmentation_rate=0.2"], "--augmentation_rate 0.2 would change nothing"),
        (["--mlm_weight=inf"], "must be at least 0"),
        (["--per_device_train_batch_size=49"], "cannot fill a batch of 49"),
        (["--sts_file=DIR/flat.tsv"], "scores all 2 pairs 3, so nothing can correlate"),
    ],
)
def test_bad_arguments_are_named_before_training(
    start: Path, sentences: Path, tmp_path: Path, more: list[str], message: str
) -> None:
    (tmp_path / "flat.tsv").write_text("A\tB\t3\nC\tD\t3\n")
    more = [flag.replace("DIR", str(tmp_path)) for flag in more]
    if any("white" in flag for flag in more):
        model = tiny_simbert()
        whiten(model, TEXTS, dim=4)
        model.save_pretrained(tmp_path / "white")
    with pytest.raises((ValueError, OSError), match=message):
        main(flags(start, sentences, tmp_path / "out", *more))
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_run_without_scored_pairs_is_warned_before_anything_is_read(
    start: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataError, match="is not a file"):
        main(flags(start, tmp_path / "none.txt", tmp_path / "out"))
    [warning] = [line.message for line in caplog.records if line.levelname == "WARNING"]
    assert warning == (
        "Nothing is evaluated during training, so the last model is kept, not the best: give "
        "--sts_file with scored pairs to choose the best."
    )


def test_unknown_examples_from_a_file_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("examples: images\npreset: paper-sup\n")
    with pytest.raises(SystemExit):
        parse_arguments(TYPES, [str(tmp_path / "run.yaml")], SIMCSE_PRESETS)
    assert "--examples: invalid choice: 'images'" in capsys.readouterr().err


# Parts, without a run ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "objective"),
    [
        (SimCseArguments(), SimCseObjective(symmetric=True, mlm_weight=0.0)),
        (
            SimCseArguments(loss="one_way", scale=3.0),
            SimCseObjective(scale=3.0, symmetric=False, mlm_weight=0.0),
        ),
        (
            SimCseArguments(
                examples="triplets", hard_negative_weight=2.0, mask_false_negatives=False,
                mlm_weight=0.1, similarity_weight=0.5,
            ),
            SimCseObjective(
                symmetric=False, hard_negative_weight=2.0, mask_false_negatives=False,
                mlm_weight=0.1, similarity_weight=0.5,
            ),
        ),
        (SimCseArguments(examples="scored"), ScoredPairObjective(loss="cosent", scale=20.0)),
        (
            SimCseArguments(examples="scored", loss="angle", scale=5.0),
            ScoredPairObjective(loss="angle", scale=5.0),
        ),
    ],
)  # fmt: skip
def test_the_flags_reach_the_objective(arguments, objective) -> None:
    assert make_simcse_objective(arguments) == objective


def test_a_head_that_the_model_has_is_not_fresh() -> None:
    assert prepare_simcse(tiny_simbert(), SimCseArguments(mlm_weight=0.1)) is None


def test_trying_dropout_draws_no_number_of_the_run() -> None:
    model = tiny_simbert()
    before = torch.get_rng_state()
    check_dropout(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_replacing_words_in_few_sentences_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbert_hf.training.simcse.nearest_words", lambda *_: {"cat": ["dog"]})
    arguments, model = (
        SimCseArguments(augmentation="replace", augmentation_rate=0.3),
        tiny_simbert(),
    )

    def data(count: int) -> FixedPairs:
        texts = [f"{'cat' if i < count else 'mat'} {i}" for i in range(100)]
        return FixedPairs({"source": texts, "target": texts})

    with pytest.raises(ValueError, match="can change words in only 4 of 100 sentences"):
        make_augmentation(arguments, model, data(4))
    found = make_augmentation(arguments, model, data(5))
    assert found is not None
    assert (found.rate, found.synonyms) == (0.3, {"cat": ["dog"]})


def test_scores_that_are_all_equal_teach_nothing(tmp_path: Path) -> None:
    (file := tmp_path / "sts.tsv").write_text("a\tb\t1\nc\td\t1\n")
    with pytest.raises(DataError, match=r"sts\.tsv"):
        read_columns("scored", [str(file)])
