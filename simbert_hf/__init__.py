"""Paraphrase, embed and retrieve with one BERT checkpoint in plain Hugging Face format."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_MODELS = Path(__file__).parent / "models"
DEFAULT_MODEL = str(_MODELS / "simbert-minilm-en")
"""Directory of the English model that ships with the package, in half precision."""
CHINESE_MODEL = str(_MODELS / "simbert-e5-zh")
"""Directory of the Chinese model that ships with the package, in half precision."""

_LAZY = {
    "CharGru": "simbert_hf.gru",
    "FaqIndex": "simbert_hf.index",
    "SentenceEncoder": "simbert_hf.modeling.encoder",
    "SimBert": "simbert_hf.modeling.simbert",
    "SimBertConfig": "simbert_hf.modeling.simbert",
    "SimBertOutput": "simbert_hf.modeling.simbert",
    "gen_synonyms": "simbert_hf.generation.synonyms",
}
__all__ = [
    "CHINESE_MODEL",
    "DEFAULT_MODEL",
    "CharGru",
    "FaqIndex",
    "SentenceEncoder",
    "SimBert",
    "SimBertConfig",
    "SimBertOutput",
    "__version__",
    "gen_synonyms",
]

if TYPE_CHECKING:
    from simbert_hf.generation.synonyms import gen_synonyms
    from simbert_hf.gru import CharGru
    from simbert_hf.index import FaqIndex
    from simbert_hf.modeling.encoder import SentenceEncoder
    from simbert_hf.modeling.simbert import SimBert, SimBertConfig, SimBertOutput


def __dir__() -> list[str]:
    """Name what can be imported, too, for ``help`` and completion."""
    return sorted({*globals(), *_LAZY})


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import simbert_hf`` stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
