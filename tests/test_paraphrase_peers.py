"""The peers of the paraphrase benchmark: their rows, their start, and what they write."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import DataCollatorForSeq2Seq

from benchmarks.reports import kept
from benchmarks.transformers_peers import CAUSAL, PEERS, peer_trainer, token_rows, write_peer
from simbert_hf import SimBert
from tests.tiny import WORDS, tiny_simbert

pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0:FutureWarning")

TEXTS = ["the weather is nice", "reset my password", "a cat sat on the mat and a dog ran", "go"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder without an LM head, as the released ones are."""
    folder = tmp_path_factory.mktemp("start")
    model = tiny_simbert()
    model.has_lm_head = False
    model.save_pretrained(folder)
    return folder


def test_the_loss_is_of_the_target_alone(start: Path) -> None:
    tokenizer = SimBert.from_pretrained(start).rows.tokenizer
    (joined, _), (own, back) = (
        token_rows(tokenizer, [("a cat ran", "a dog sat")], joined=joined).to_list()
        for joined in (True, False)
    )
    assert tokenizer.decode(joined["input_ids"]) == "[CLS] a cat ran [SEP] a dog sat [SEP]"
    assert joined["labels"] == [-100] * 5 + joined["input_ids"][5:]
    assert tokenizer.decode(own["input_ids"]) == "[CLS] a cat ran [SEP]"
    assert own["labels"] == joined["input_ids"][5:]
    assert tokenizer.decode(back["labels"]) == "a cat ran [SEP]"


@pytest.mark.parametrize("name", PEERS)
def test_all_weights_train_and_only_fresh_ones_at_the_higher_rate(
    start: Path, name: str, tmp_path: Path
) -> None:
    model = PEERS[name](str(start))
    tokenizer = SimBert.from_pretrained(start).rows.tokenizer
    data = token_rows(tokenizer, [("a cat ran", "a dog sat")], joined=name == CAUSAL)
    trainer = peer_trainer(
        model, tokenizer, data, rate=1e-3, steps=1, pairs=1, seed=0, output_dir=tmp_path
    )
    rates = {p: group["lr"] for group in trainer.optimizer.param_groups for p in group["params"]}
    known = {key.removeprefix("bert.") for key in load_file(start / "model.safetensors")}
    for name_, parameter in model.named_parameters():
        own = re.sub(r"^(encoder|decoder)\.", "", name_).removeprefix("bert.")
        assert rates[parameter] == (1e-3 if own in known else 1e-2), name_


@pytest.mark.parametrize("name", PEERS)
def test_likelihoods_of_what_is_written_are_those_of_the_loss(
    start: Path, name: str, tmp_path: Path
) -> None:
    """Saved, loaded, sampled for texts of unlike lengths; the loss is of one row at a time."""
    encoder, model = SimBert.from_pretrained(start), PEERS[name](str(start)).eval()
    tokenizer = encoder.rows.tokenizer
    bias = getattr(model, "decoder", model).cls.predictions.bias.data
    bias.fill_(-torch.inf)  # of what is never written, and of pieces that decoding joins
    bias[tokenizer.convert_tokens_to_ids(WORDS)] = 0.0
    bias[tokenizer.sep_token_id] = 2.5
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    drafts = write_peer(loaded, encoder, TEXTS, n=4, seed=0)
    assert max(len(draft.text.split()) for row in drafts for draft in row) > 2
    for text, draft in (
        (text, draft) for text, row in zip(TEXTS, drafts, strict=True) for draft in row
    ):
        rows = token_rows(tokenizer, [(text, draft.text)], joined=name == CAUSAL)
        batch = DataCollatorForSeq2Seq(tokenizer)([rows.remove_columns("length")[0]])
        loss = model(**batch).loss.item()
        assert -loss == pytest.approx(draft.log_prob, rel=1e-4)


def test_what_is_there_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    with pytest.raises(KeyboardInterrupt):
        kept(path, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    first = kept(path, lambda: {"loss": 1.5})
    assert first["loss"] == 1.5
    assert kept(path, lambda: {"loss": 0.0}) == first
