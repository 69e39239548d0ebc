"""Margin softmax: classify sentences into their groups, so that vectors of a group are near."""
