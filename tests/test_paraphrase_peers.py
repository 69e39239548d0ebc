"""The peers of the paraphrase benchmark: their rows, their start, and what they write."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertLMHeadModel, DataCollatorForSeq2Seq

from benchmarks.paraphrase_peers import kept
from benchmarks.transformers_peers import CAUSAL, PEERS, peer_trainer, token_rows, write_peer
from simbert_hf import SimBert
from tests.tiny import tiny_simbert

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
        token_rows(tokenizer, [["a cat ran", "a dog sat"]], joined=joined).to_list()
        for joined in (True, False)
    )
    assert tokenizer.decode(joined["input_ids"]) == "[CLS] a cat ran [SEP] a dog sat [SEP]"
    assert joined["labels"] == [-100] * 5 + joined["input_ids"][5:]
    assert tokenizer.decode(own["input_ids"]) == "[CLS] a cat ran [SEP]"
    assert own["labels"] == joined["input_ids"][5:]
    assert tokenizer.decode(back["labels"]) == "a cat ran [SEP]"


@pytest.mark.parametrize("name", PEERS)
def test_all_weights_train_and_only_fresh_ones_at_the_higher_rate(start: Path, name: str) -> None:
    model = PEERS[name](str(start))
    tokenizer = SimBert.from_pretrained(start).rows.tokenizer
    data = token_rows(tokenizer, [["a cat ran", "a dog sat"]], joined=name == CAUSAL)
    trainer = peer_trainer(model, tokenizer, data, rate=1e-3, steps=1, pairs=1, seed=0)
    rates = {p: group["lr"] for group in trainer.optimizer.param_groups for p in group["params"]}
    known = {key.removeprefix("bert.") for key in load_file(start / "model.safetensors")}
    for name_, parameter in model.named_parameters():
        own = re.sub(r"^(encoder|decoder)\.", "", name_).removeprefix("bert.")
        assert rates[parameter] == (1e-3 if own in known else 1e-2), name_


@pytest.mark.parametrize("name", PEERS)
def test_what_is_written_and_its_likelihood_are_those_of_the_loss(start: Path, name: str) -> None:
    """Texts of unlike lengths together, the likeliest token each time, against the plain loss."""
    torch.manual_seed(0)
    encoder, model = SimBert.from_pretrained(start), PEERS[name](str(start)).eval()
    for parameter in model.parameters():  # else it repeats the last token
        parameter.data += 0.2 * torch.randn_like(parameter)
    bias = getattr(model, "decoder", model).cls.predictions.bias.data
    bias[:5] = -torch.inf  # as what is never written
    bias[3] = 2.0  # [SEP]
    tokenizer = encoder.rows.tokenizer
    drafts = write_peer(model, encoder, TEXTS, n=2, seed=0, top_k=1)
    alone = [write_peer(model, encoder, [text], n=1, seed=0, top_k=1)[0] for text in TEXTS]
    collate = DataCollatorForSeq2Seq(tokenizer)
    print(drafts)
    assert max(len(draft.text.split()) for row in drafts for draft in row) > 2
    for text, row, (*single,) in zip(TEXTS, drafts, alone, strict=True):
        assert [draft.text for draft in row] == 2 * [draft.text for draft in single]
        for draft in row:
            (example, _) = token_rows(
                tokenizer, [[text, draft.text]], joined=isinstance(model, BertLMHeadModel)
            ).to_list()
            example.pop("length")
            assert -model(**collate([example])).loss.item() == pytest.approx(draft.log_prob, 1e-4)


def test_what_is_there_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    with pytest.raises(KeyboardInterrupt):
        kept(path, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    first = kept(path, lambda: {"loss": 1.5})
    assert first["loss"] == 1.5
    assert kept(path, lambda: {"loss": 0.0}) == first
