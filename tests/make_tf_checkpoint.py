"""Write the checkpoints in ``tests/data``, as TensorFlow's own ``Saver`` does; needs TensorFlow.

python -m tests.make_tf_checkpoint
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.original import CONFIG, FACTORISED, ROTARY, VOCABULARY, Weights, random_weights

DATA = Path(__file__).parent / "data"
FIXTURE = DATA / "tiny_simbert"
FIXTURES = {  # settings, whether positions are rotary, and a seed by which the texts differ
    FIXTURE: (CONFIG, False, 0),
    DATA / "tiny_simbert_factorised": (FACTORISED, False, 2),
    DATA / "tiny_roformer_sim": (ROTARY, True, 2),
}


def save_checkpoint(prefix: Path, weights: Weights, shards: int = 1) -> None:
    """Save variables with a training run's counter and the slots of some of them."""
    import tensorflow as tf

    v1 = tf.compat.v1
    extra = {"global_step": np.int64(1170000)}
    for name in list(weights)[-4:]:
        extra |= {f"{name}/{slot}": np.ones_like(weights[name]) for slot in ("adam_m", "adam_v")}
    with tf.Graph().as_default():
        for i, (name, value) in enumerate({**weights, **extra}.items()):
            with tf.device(f"/cpu:{i % shards}"):
                v1.get_variable(name, initializer=value, use_resource=False)
        options = v1.ConfigProto(device_count={"CPU": shards})
        with v1.Session(config=options) as session:
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver(sharded=shards > 1)
            saver.save(session, str(prefix), write_meta_graph=False, write_state=False)


def main() -> None:
    """Write the folders."""
    for folder, (config, rotary, seed) in FIXTURES.items():
        folder.mkdir(parents=True, exist_ok=True)
        save_checkpoint(folder / "bert_model.ckpt", random_weights(config, rotary, seed))
        (folder / "bert_config.json").write_text(json.dumps(config, indent=2) + "\n")
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
