"""Coining: what joining pieces costs, by hand, and what a real model writes less of."""

from itertools import pairwise

import torch

from simbert_hf.generation import writing
from simbert_hf.generation.coining import hinder_coining, pieces_of_words
from simbert_hf.generation.search import Prefixes, SearchSettings


def test_only_pieces_that_the_source_does_not_join_are_less_likely():
    """Pieces are 5, 6 and 7; the sources 3 5 6 4 5 4 5 and 4 6."""
    known = torch.tensor([[3, 5, 6, 4, 5, 4, 5], [4, 6, -1, -1, -1, -1, -1]])
    pieces, row = torch.tensor([5, 6, 7]), torch.tensor([0])

    def found(source, *tokens):
        prefixes = Prefixes(row, torch.tensor([source]), torch.tensor([tokens]))
        return hinder_coining(known, pieces, 2.0, torch.zeros(1, 9), prefixes)[0].tolist()

    assert not any(found(0))
    for source, token, kept in (
        (0, 3, {5}),
        (0, 4, {5}),
        (0, 5, {6}),
        (0, 8, set()),
        (1, 4, {6}),
        (1, 6, set()),  # nothing stands behind it
    ):
        assert found(source, 3, token) == [-2.0 if i in {5, 6, 7} - kept else 0.0 for i in range(9)]


def test_pieces_go_on_with_words(english):
    names = english.tokenizer.convert_ids_to_tokens(pieces_of_words(english.tokenizer))
    assert len(names) > 5000
    assert all(name.startswith("##") for name in names)
    assert "##ing" not in names  # it is mostly right


def joined(tokenizer, source: str, text: str) -> set[tuple[str, str]]:
    pairs = ({*pairwise(tokenizer.tokenize(some))} for some in (text, source))
    return {pair for pair in set.difference(*pairs) if pair[1].startswith("##")}


def test_a_weaker_copying_also_coins_more_readily(english):
    texts = ["fix the heater"]
    settings, rows = SearchSettings(copying=0.5, repeats=True), english.rows.sources(texts, 9)
    copying, _, coining = writing.make_restraints(None, english, texts, rows, settings)
    assert (coining.args[-1], copying.weight) == (2.0, 0.5)


def test_a_real_model_puts_fewer_new_words_together(english, monkeypatch):
    text = "Sunflowers in a vase on a windowsill."
    counts = []
    monkeypatch.setattr(writing, "keep_facts", lambda drafts, *_, **__: drafts)  # drops them, too
    for coined in (0.0, 4.0):
        monkeypatch.setattr(writing, "COINED", coined)
        (drafts,) = writing.write(english, [text], SearchSettings(40, max_new_tokens=20))
        found = [draft.text for draft in drafts]
        counts.append(sum(bool(joined(english.tokenizer, text, other)) for other in found))
    assert counts[0] > 2 * counts[1]
    assert sum("windowsill" in other for other in found) > 20  # pieces that the text joins
