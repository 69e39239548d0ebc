"""The UniLM prefix mask: the source is read both ways, its paraphrase from left to right."""

from __future__ import annotations

import torch
from torch import Tensor


def prefix_mask(token_type_ids: Tensor, attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Build the additive prefix mask of UniLM (Dong et al. 2019, https://arxiv.org/abs/1905.03197).

    With ``c = cumsum(token_type_ids)``, a query position ``q`` sees a key position ``k`` when
    ``c[k] <= c[q]`` and ``k`` is not padding: source tokens (segment 0) see the whole source and
    nothing else, target tokens (segment 1) see the source and the target up to themselves.

    The mask is additive: eager attention silently *adds* a boolean 4-D mask as 0 and 1.

    Args:
        token_type_ids: Segment of each token, 0 for the source, 1 for the target. Shape: (B, L).
        attention_mask: 1 for tokens, 0 for padding (on either side). Shape: (B, L).
        dtype: Floating dtype of the attention scores; its minimum stands for "may not see".

    Returns:
        0 where a query may see a key, ``finfo(dtype).min`` elsewhere. Shape: (B, 1, L, L).

    Raises:
        ValueError: If the two inputs are not two (B, L) tensors of equal shape.

    Example:
        >>> segments, real = torch.tensor([[0, 0, 1, 1]]), torch.ones(1, 4)
        >>> (prefix_mask(segments, real, torch.float32)[0, 0] == 0).int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    if token_type_ids.shape != attention_mask.shape or token_type_ids.dim() != 2:
        raise ValueError(
            "prefix_mask needs token_type_ids and attention_mask of equal shape (B, L); got "
            f"{tuple(token_type_ids.shape)} and {tuple(attention_mask.shape)}."
        )
    order = token_type_ids.cumsum(dim=-1)  # (B, L)
    visible = order[:, None, :] <= order[:, :, None]  # (B, L query, L key)
    visible = visible & attention_mask.bool()[:, None, :]
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min).unsqueeze(1)
