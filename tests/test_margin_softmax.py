"""The margin softmax script from end to end, on tiny encoders and a few sentences."""

from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from scripts.train_margin_softmax import main
from simbert_hf import SimBert
from simbert_hf.arguments import DataArguments, ModelArguments, SimilarityTrainingArguments
from simbert_hf.evaluation.evaluators import RetrievalEvaluator
from simbert_hf.gru import CharGru
from simbert_hf.margin.softmax import MarginSoftmax
from simbert_hf.margin.training import MARGIN_PRESETS, MarginArguments, load_class_data, n_classes
from simbert_hf.training.base_models import EncoderArguments, load_vector_encoder
from simbert_hf.utils.parsing import parse_arguments
from tests.test_encoder import ARCHITECTURES
from tests.tiny import ROWS, assert_resumes, lines_with, losses_of, save_tiny_simbert

GRU = ["--preset=gru", "--min_count=1", "--gru_size=16"]


def flags(data: Path, out: Path, *more: str) -> list[str]:
    return [
        *GRU, f"--train_file={data}", f"--output_dir={out}",
        "--per_device_train_batch_size=12", "--use_cpu", "--max_steps=8",
        "--validation_groups=2", "--eval_strategy=steps", "--eval_steps=4",
        "--save_strategy=steps", "--save_steps=4", "--logging_steps=1", "--learning_rate=1e-2",
        "--head_learning_rate=1e-2", "--report_to=none", "--disable_tqdm=true", *more,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        ("--loss=softmax", "--center_weight=0.1"),
        pytest.param(("--loss=am", "--margin=0.2"), marks=pytest.mark.slow),
        ("--loss=arc", "--sub_centres=2"),
        ("--loss=simpler_a", "--scale=10", "--sampled_classes=2"),
    ],
)
def test_a_gru_learns_and_its_centres_are_dropped(more, intents: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    once = ("--max_steps=40", "--eval_steps=40", "--save_steps=40")
    trainer = main(flags(intents, out, *once, *more))
    losses = losses_of(trainer)
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
    names = {"embedding.weight", *(f"gru.{kind}_{side}_l0" for kind in ("weight", "bias")
                                   for side in ("ih", "hh"))}  # fmt: skip
    assert set(load_file(out / "model.safetensors")) == names
    checkpoint = out / "checkpoint-40"
    sampled = any("sampled" in flag for flag in more)
    centres = set() if sampled else {"class_centres.softmax"}
    centres |= {"class_centres.mean"} if "--loss=softmax" in more else set()
    assert set(load_file(checkpoint / "model.safetensors")) == names | centres
    if "--loss=softmax" in more:
        line = lines_with("center", trainer)[0]
        expected = line["classification"] + 0.1 * line["center"]
        assert line["loss"] == pytest.approx(expected, rel=1e-4)
    assert (checkpoint / "class_centres-1-of-1.safetensors").exists() == sampled
    assert not list(out.rglob("training_args.bin"))


def bert_flags(data: Path, out: Path, start: Path, *more: str) -> list[str]:
    options = [flag for flag in flags(data, out) if flag not in GRU]
    return [*options, f"--model_name_or_path={start}", "--max_length=24", *more]


def test_a_bert_learns_and_loads_everywhere(intents: Path, tmp_path: Path) -> None:
    save_tiny_simbert(tmp_path / "start")
    out = tmp_path / "out"
    more = ("--max_steps=24", "--save_strategy=no")
    losses = losses_of(main(bert_flags(intents, out, tmp_path / "start", *more)))
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
    saved, start = (load_file(path / "model.safetensors") for path in (out, tmp_path / "start"))
    assert set(saved) == set(start)  # the LM head too, as it was
    head = "cls.predictions.transform.dense.weight"
    assert torch.equal(saved[head], start[head])
    texts = [text for text, _ in ROWS[:5]]
    theirs = SentenceTransformer(str(out), device="cpu").encode(texts)
    assert abs(SimBert.from_pretrained(out).encode(texts) - theirs).max() < 1e-5


def test_an_encoder_without_segments_learns(intents: Path, tmp_path: Path) -> None:
    config, build_tokenizer = ARCHITECTURES["distilbert"]
    AutoModel.from_config(config).save_pretrained(tmp_path / "start")
    build_tokenizer().save_pretrained(tmp_path / "start")
    more = ("--max_steps=24", "--save_strategy=no")
    losses = losses_of(main(bert_flags(intents, tmp_path / "out", tmp_path / "start", *more)))
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])


def test_another_number_of_classes_is_named_on_resume(intents: Path, tmp_path: Path) -> None:
    main(flags(intents, tmp_path / "out", "--max_steps=4"))
    more = ("--validation_groups=3", "--resume_from_checkpoint=true")
    with pytest.raises(
        ValueError, match="checkpoint-4 is from another model: resume with the same data"
    ):
        main(flags(intents, tmp_path / "out", *more))


def test_sampled_centres_follow_any_schedule(intents: Path, tmp_path: Path) -> None:
    more = ("--sampled_classes=2", "--lr_scheduler_type=reduce_lr_on_plateau", "--max_steps=8")
    losses = losses_of(main(flags(intents, tmp_path / "out", *more)))
    assert losses[-1] < losses[0]


def test_a_trained_gru_reads_no_more_than_it_did(intents: Path, tmp_path: Path) -> None:
    main(flags(intents, tmp_path / "out", "--max_length=16", "--max_steps=1"))
    given = f"--model_name_or_path={tmp_path / 'out'}"
    with pytest.raises(ValueError, match="--min_count 1 would change nothing, as the given GRU"):
        main(flags(intents, tmp_path / "more", given))
    more = (given, "--min_count=5", "--gru_size=128", "--max_length=40")
    with pytest.raises(ValueError, match="--max_length 40 is out of range"):
        main(flags(intents, tmp_path / "more", *more))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("--sampled_classes=2", "--gradient_accumulation_steps=2"),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    more, intents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(out: Path, *flag: str) -> None:
        options = ("--load_best_model_at_end=false", "--max_steps=9", *more, *flag)
        main(flags(intents, out, *options))

    assert_resumes(run, tmp_path, {7: 4}, monkeypatch)
    if "--sampled_classes=2" in more:  # written before the checkpoint got its name
        saved = tmp_path / "stopped" / "checkpoint-4" / "class_centres-1-of-1.safetensors"
        assert saved.exists()


def test_the_flags_reach_the_softmax() -> None:
    assert MarginArguments("arc", 7.0, 0.3).softmax() == MarginSoftmax("arc", 7.0, 0.3)


def test_the_articles_preset() -> None:
    types = (EncoderArguments, DataArguments, MarginArguments, SimilarityTrainingArguments)
    start, data, margin, args = parse_arguments(types, ["--preset=original"], MARGIN_PRESETS)
    assert (start.encoder, start.gru_size, start.min_count, start.mask_padding) == (
        "gru", 128, 5, False
    )  # fmt: skip
    assert (margin.softmax().kind, margin.scale, margin.softmax().margin) == ("am", 30.0, 0.35)
    assert (data.max_length, args.per_device_train_batch_size) == (32, 100)
    assert (args.learning_rate, args.head_learning_rate, args.weight_decay) == (1e-3, 1e-3, 0.0)
    assert (args.lr_scheduler_type, args.max_grad_norm, args.num_train_epochs) == (
        "constant",
        0,
        25,
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--margin=2"], "margin 2.0 of 'am' is out of range"),
        (["--scale=0"], "scale 0.0"),
        (["--loss=softmax", "--scale=3"], "--scale 3.0 would change nothing"),
        (["--learning_rate=0", "--sampled_classes=2"], "no schedule to follow"),
        (["--loss=softmax", "--sub_centres=2"], "--sub_centres 2"),
        (["--sampled_classes=0"], "--sampled_classes 0"),
        (["--center_weight=1", "--sampled_classes=2"], "--center_weight 1.0"),
        (["--center_weight=nan"], "--center_weight nan: give at least 0"),
        (["--gru_size=0"], "--gru_size must be at least 1"),
        (["--min_count=99999"], "No character occurs 99999 times"),
        (["--pooling=cls"], "--pooling cls would change nothing, as --encoder is gru"),
        (["--hidden_dropout=0"], "--hidden_dropout 0.0 would change nothing"),
        (["--max_length=0"], "--max_length 0: give at least 1"),
        (["--encoder=bert"], "--min_count 1 would change nothing, as --encoder is bert"),
        (["--sts_file=DIR/sts.tsv", "--validation_groups=0"], "--sts_file belongs to the eval"),
        (["--streaming=true"], "--streaming True would change nothing"),
        (["--train_file=DIR/single.tsv"], "no two different sentences stand together"),
        (["--train_file=DIR/one.tsv", "--validation_groups=0"], "There is only one class"),
        (["--train_file=DIR/unlabelled.csv"], "do not hold 'text' and 'synonyms'"),
        (["--validation_groups=6"], "choose a number from 2 to 5"),
        (["--sub_centres=99999999999"], "GB are free; sample them with --sampled_classes"),
        (["--metric_for_best_model=loss"], "loss is not measured; choose one of eval_top1"),
    ],
)
def test_bad_input_is_named_before_training(more, message, intents: Path, tmp_path: Path) -> None:
    (tmp_path / "single.tsv").write_text("1\tone sentence\n2\tanother\n")
    (tmp_path / "one.tsv").write_text("1\tone sentence\n1\tanother\n")
    (tmp_path / "unlabelled.csv").write_text("text,colour\na,b\n")
    more = [flag.replace("DIR", str(tmp_path)) for flag in more]
    with pytest.raises((ValueError, OSError), match=message):
        main(flags(intents, tmp_path / "out", *more))
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_characters_too_rare_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["aaaa Ａ你好", "你好早"]
    for min_count in (1, 2, 3):
        given = EncoderArguments(encoder="gru", min_count=min_count)
        load_vector_encoder(ModelArguments(), given, 8, iter(texts))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        "2 characters rarer than --min_count 2 (18 % of the text) are unknown: lower --min_count.",
        "4 characters rarer than --min_count 3 (55 % of the text) are unknown: lower --min_count.",
    ]


def test_the_seed_of_the_order_reaches_the_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"texts": [["a", "b"], ["c", "d"]], "group": [0, 1]}
    groups = datasets.Dataset.from_dict(rows)
    monkeypatch.setattr("simbert_hf.margin.training.read_groups", lambda *_: groups)
    monkeypatch.setattr("simbert_hf.margin.training.hold_out", lambda *_: (groups, groups))
    train, evaluator = load_class_data(DataArguments(), SimpleNamespace(order_seed=7))
    assert (train.seed, n_classes(train)) == (7, 2)
    assert isinstance(evaluator, RetrievalEvaluator)


def test_an_lm_head_is_not_trained_with_vectors(tmp_path: Path) -> None:
    save_tiny_simbert(tmp_path)
    given = ModelArguments(model_name_or_path=str(tmp_path))
    model = load_vector_encoder(given, EncoderArguments(), 8, [])
    idle = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    head = {name for name, _ in model.named_parameters() if name.startswith(model.head_prefix)}
    assert head
    assert head <= idle


def test_a_new_gru_is_shaped_as_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    given = EncoderArguments("gru", min_count=1, gru_size=6, mask_padding=False)
    found = load_vector_encoder(ModelArguments(), given, 8, ["ab", "a c"]).config
    sizes = found.embedding_size, found.hidden_size, found.max_length, found.mask_padding
    assert sizes == (6, 6, 8, False)
    assert "the GRU knows 4 characters" in caplog.text


def test_a_given_gru_does_not_go_back_to_reading_its_padding(tmp_path: Path) -> None:
    for stops in (True, False):
        gru = CharGru.for_texts(["a cat"], min_count=1, max_length=8, mask_padding=stops)
        gru.save_pretrained(tmp_path / str(stops))
    given = EncoderArguments(encoder="gru", mask_padding=False)
    reads_padding = ModelArguments(model_name_or_path=str(tmp_path / "False"))
    assert not load_vector_encoder(reads_padding, given, 8, []).config.mask_padding
    stops_before = ModelArguments(model_name_or_path=str(tmp_path / "True"))
    assert load_vector_encoder(stops_before, EncoderArguments("gru"), 8, []).config.mask_padding
    with pytest.raises(ValueError, match="stops at a sentence's end: --mask_padding false"):
        load_vector_encoder(stops_before, given, 8, [])


def test_gaps_and_single_sentences_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "gaps.tsv"
    path.write_text("7\ta cat\n7\tone cat\n90\ta dog\n900\tthe mat\n900\tmats\n5\tmats\n5\tno\n")
    caplog.set_level("INFO")
    trainer = main(flags(path, tmp_path / "out", "--validation_groups=0", "--max_steps=1",
                         "--per_device_train_batch_size=2", "--eval_strategy=no"))  # fmt: skip
    assert sorted(trainer.train_dataset.columns["label"]) == [0, 0, 1, 1, 1]
    assert "left out: 1 one-member record" in caplog.text
    assert "5 sentences of 2 classes" in caplog.text
    assert "merged into others, as they share sentences such as 'mats': 1" in caplog.text
