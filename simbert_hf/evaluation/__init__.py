"""What a model is worth: while it trains (evaluators), and beside others (the other modules)."""

from __future__ import annotations

from simbert_hf.evaluation.bootstrap import Bootstrap, Comparison, Figure, compare
from simbert_hf.evaluation.evaluators import (
    RetrievalEvaluator,
    SimBertEvaluator,
    StsEvaluator,
    sts_spearman,
)
from simbert_hf.evaluation.geometry import (
    CollapseMeter,
    alignment,
    effective_rank,
    mean_pairwise_cosine,
    uniformity,
)
from simbert_hf.evaluation.pairs import PairTask, best_thresholds, load_pair_task
from simbert_hf.evaluation.results import Results, TaskResult
from simbert_hf.evaluation.retrieval import (
    RetrievalTask,
    load_retrieval_task,
    rank_group_mates,
    topk_accuracy,
)
from simbert_hf.evaluation.sts import StsTask, correlations, load_sts_tasks

__all__ = [
    "Bootstrap",
    "CollapseMeter",
    "Comparison",
    "Figure",
    "PairTask",
    "Results",
    "RetrievalEvaluator",
    "RetrievalTask",
    "SimBertEvaluator",
    "StsEvaluator",
    "StsTask",
    "TaskResult",
    "alignment",
    "best_thresholds",
    "compare",
    "correlations",
    "effective_rank",
    "load_pair_task",
    "load_retrieval_task",
    "load_sts_tasks",
    "mean_pairwise_cosine",
    "rank_group_mates",
    "sts_spearman",
    "topk_accuracy",
    "uniformity",
]
