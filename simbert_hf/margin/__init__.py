"""Margin softmax: sentences classified into their groups, so that vectors of a group are near."""
