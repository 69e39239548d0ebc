"""GradCache: the whole batch's gradients, the first pass's masks, one micro-batch at a time."""

from __future__ import annotations

import weakref
from copy import deepcopy

import pytest
import torch

from simbert_hf import CharGru
from simbert_hf.collators import PairCollator, SimCseCollator
from simbert_hf.margin.classes import MarginObjective, add_centres
from simbert_hf.margin.softmax import MarginSoftmax
from simbert_hf.modeling.simbert import SimBertOutput
from simbert_hf.objectives import ScoredPairObjective, SimBertObjective, SimCseObjective
from simbert_hf.training.gradcache import micro_batches, use_gradcache
from simbert_hf.triplet.objective import TripletObjective
from tests.tiny import WORDS, tiny_simbert

PAIRS = [
    {"source": " ".join(WORDS[i : i + 1 + 2 * i]), "target": " ".join(WORDS[2 * i : 3 * i + 2]),
     "group": i % 5, "seed": 3 * i + 1}
    for i in range(7)
]  # fmt: skip
TRIPLETS = [pair | {"negative": WORDS[i + 9]} for i, pair in enumerate(PAIRS)]
SCORED = [pair | {"score": float(i)} for i, pair in enumerate(PAIRS)]


def joint_batch(model):
    batch = PairCollator(model.rows, 24, mlm=True, texts=True, sentences=WORDS)(PAIRS)
    torch.manual_seed(5)
    wanted = torch.rand(len(batch["texts"]), len(batch["texts"]), dtype=torch.float64)
    return SimBertObjective(mlm_weight=0.5, teacher=lambda _: wanted, simcse_weight=0.7), batch


def cases(model):
    """Each objective and its batch, by name."""
    triplets = SimCseCollator(model.rows, mlm=True)(TRIPLETS)
    plain = SimCseCollator(model.rows)(SCORED)
    pairs = SimCseCollator(model.rows)(PAIRS)
    add_centres(model, (5, 2, 32), seed=0)
    model.double()
    classes = {"classes": plain["groups"] % 5} | plain
    return {
        "joint": joint_batch(model),
        "unwritten": (SimBertObjective(seq2seq_weight=0.0), PairCollator(model.rows, 24)(PAIRS)),
        "simcse": (SimCseObjective(mlm_weight=0.5), SimCseCollator(model.rows, mlm=True)(PAIRS)),
        "negatives": (SimCseObjective(symmetric=False, hard_negative_weight=0.3), triplets),
        "scored": (ScoredPairObjective(), plain),
        "triplet": (TripletObjective(mining="semi_hard", margin=1.0), pairs),
        "margin": (MarginObjective(MarginSoftmax("arc")), classes),
    }


def step(model, objective, batch, seed=1, call=None):
    """The loss and every weight's gradient."""
    model.zero_grad()
    torch.manual_seed(seed)
    loss = objective(call or model, batch).total
    loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.item(), found


def assert_equal(found, wanted, tolerance=1e-9):
    assert found[0] == pytest.approx(wanted[0], abs=tolerance)
    assert found[1].keys() == wanted[1].keys()
    for name, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize(
    "name", ["joint", "unwritten", "simcse", "negatives", "scored", "triplet", "margin"]
)
def test_gradients_are_those_of_the_whole_batch(name: str) -> None:
    model = tiny_simbert().double()
    objective, batch = cases(model)[name]
    wanted = step(model, objective, batch)
    assert max(gradient.abs().max() for gradient in wanted[1].values()) > 1e-2
    for size in (1, 4, 100):
        cached = tiny_simbert()
        add_centres(cached, (5, 2, 32), seed=0)
        cached.double().load_state_dict(model.state_dict())
        use_gradcache(cached, size)
        assert_equal(step(cached, objective, batch), wanted)


@pytest.fixture
def dropping():
    model = tiny_simbert(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3)
    return model.double().train()


def one_by_one(model, size):
    """The same micro-batches through the plain model, everything kept: the reference."""

    def run(**inputs):
        parts = [model(**part) for part in micro_batches(inputs, size)]
        losses = {name: sum(part.lm_losses[name] for part in parts) for name in ("target", "mlm")}
        return SimBertOutput(torch.cat([p.sentence_embedding for p in parts]), lm_losses=losses)

    return run


def test_the_second_pass_draws_the_masks_of_the_first(dropping) -> None:
    objective, batch = joint_batch(dropping)
    wanted = step(dropping, objective, batch, call=one_by_one(dropping, 4))
    other = step(dropping, objective, batch, seed=2, call=one_by_one(dropping, 4))
    assert abs(other[0] - wanted[0]) > 1e-3  # the masks do matter
    use_gradcache(dropping, 4)
    assert_equal(step(dropping, objective, batch), wanted, tolerance=1e-12)


def test_the_second_pass_computes_in_the_precision_of_the_first(dropping) -> None:
    def train(call):
        model.zero_grad()
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16):
            loss = objective(call, batch).total
        loss.backward()  # outside, as a trainer does
        return loss.item(), {n: p.grad.clone() for n, p in weights if p.grad is not None}

    model = dropping.float()
    weights = list(model.named_parameters())
    objective, batch = joint_batch(model)
    wanted = train(one_by_one(model, 4))
    assert step(model, objective, batch, call=one_by_one(model, 4))[0] != wanted[0]
    use_gradcache(model, 4)
    assert_equal(train(model), wanted, tolerance=1e-6)


def test_one_micro_batch_is_held_at_a_time() -> None:
    model = tiny_simbert().train()
    objective, batch = joint_batch(model)
    use_gradcache(model, 4)
    passes, held = [], []

    def begin(*_):
        passes.append([])
        held.append(sum(any(ref() is not None for ref in refs) for refs in passes[:-1]))

    model.bert.embeddings.register_forward_pre_hook(begin)
    for layer in model.bert.encoder.layer:
        for module in (layer.intermediate, layer):  # what is inside, and hidden states
            module.register_forward_hook(
                lambda _module, _inputs, output: passes[-1].append(weakref.ref(output))
            )
    objective(model, batch).total.backward()
    rows = len(batch["input_ids"])
    assert len(passes) == 2 * -(-rows // 4)
    assert held == [0] * len(passes)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
@pytest.mark.parametrize("size", [0, 4])
def test_gradient_checkpointing_of_the_layers_changes_nothing(dropping, size: int) -> None:
    objective, batch = joint_batch(dropping)
    if size:
        use_gradcache(dropping, size)
    wanted = step(dropping, objective, batch)
    passes: list[int] = []
    dropping.bert.encoder.layer[0].attention.register_forward_hook(lambda *_: passes.append(1))
    dropping.gradient_checkpointing_enable()
    assert_equal(step(dropping, objective, batch), wanted, tolerance=1e-12)
    assert len(passes) == (3 * -(-len(batch["input_ids"]) // size) if size else 2)


def test_encoding_and_evaluation_are_left_alone() -> None:
    model, cached = tiny_simbert(), tiny_simbert()
    use_gradcache(cached, 2)
    assert (cached.encode(WORDS) == model.encode(WORDS)).all()
    copied = deepcopy(cached)
    for parameter in copied.parameters():
        parameter.data.zero_()
    assert not copied(input_ids=torch.ones(4, 3, dtype=torch.long)).sentence_embedding.any()
    ids = torch.arange(12).view(4, 3)
    with torch.no_grad():
        assert cached(input_ids=ids).last_hidden_state is not None


def test_a_batch_of_one_micro_batch_is_computed_once() -> None:
    model, passes = tiny_simbert(), []
    use_gradcache(model, 4)
    model.bert.embeddings.register_forward_pre_hook(lambda *_: passes.append(1))
    for rows, wanted in ((4, 1), (5, 4)):
        passes.clear()
        output = model(input_ids=torch.ones(rows, 3, dtype=torch.long))
        assert output.lm_losses is None
        output.sentence_embedding.sum().backward()
        assert len(passes) == wanted


def test_a_micro_batch_of_padding_alone_keeps_its_columns() -> None:
    inputs = {"input_ids": torch.ones(2, 3), "attention_mask": torch.tensor([[1, 1, 0], [0] * 3])}
    assert [part["input_ids"].shape for part in micro_batches(inputs, 1)] == [(1, 2), (1, 3)]


def test_a_gru_that_reads_padding_reads_that_of_the_whole_batch() -> None:
    texts = ["a cat sat on the mat", "go", "dog", "cats"]
    model = CharGru.for_texts(texts, min_count=1, hidden_size=8, max_length=30, mask_padding=False)
    batch = model.rows.pad(model.rows.sources(texts, 30))
    whole = model(**batch).sentence_embedding
    use_gradcache(model, 2)
    torch.testing.assert_close(model(**batch).sentence_embedding, whole)
