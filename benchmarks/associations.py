"""Which associations do the vectors have: of names with careers, of peoples with what is pleasant?

python -m benchmarks.associations --models simbert-minilm-en=DIR all-MiniLM-L6-v2=DIR
(or: --language zh --models simbert-e5-zh=DIR)

Association tests (Caliskan et al. 2017; in sentences: May et al. 2019) ask how much nearer two
lists of words are to a third than to a fourth, the one more than the other: effect size d, in
standard deviations, and a one-sided permutation test. Flowers and insects are a control.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np

from benchmarks.reports import ReportParser, save_report
from simbert_hf.encoders.loader import load_sentence_transformer
from simbert_hf.evaluation.report import layout
from simbert_hf.evaluation.suite import EvaluationArguments

SENTENCES = "This is {}.", "That is {}.", "There is {}.", "{} is here."
LISTS = {  # of Caliskan et al. 2017, but for the Arabic names
    "flowers": "aster clover hyacinth marigold poppy azalea crocus iris orchid rose daffodil lilac "
    "pansy tulip buttercup daisy lily peony violet carnation gladiola magnolia petunia zinnia",
    "insects": "ant caterpillar flea locust spider bedbug centipede fly maggot tarantula bee "
    "cockroach gnat mosquito termite beetle cricket hornet moth wasp dragonfly horsefly roach "
    "weevil",
    "men's names": "John Paul Mike Kevin Steve Greg Jeff Bill",
    "women's names": "Amy Joan Lisa Sarah Diana Kate Ann Donna",
    "men": "male man boy brother he him his son",
    "women": "female woman girl sister she her hers daughter",
    "European American": "Brad Brendan Geoffrey Greg Brett Matthew Neil Todd Allison Anne Carrie "
    "Emily Jill Laurie Meredith Sarah",
    "African American": "Darnell Hakim Jermaine Kareem Jamal Leroy Rasheed Tyrone Aisha Ebony "
    "Keisha Kenya Lakisha Latoya Tamika Tanisha",
    "Arabic": "Ahmed Ali Hassan Ibrahim Khalid Mohammed Omar Yusuf Aisha Fatima Hala Khadija Layla "
    "Maryam Noor Zainab",
    "career": "executive management professional corporation salary office business career",
    "family": "home parents children family cousins marriage wedding relatives",
    "science": "science technology physics chemistry Einstein NASA experiment astronomy",
    "arts": "poetry art Shakespeare dance literature novel symphony drama",
    "pleasant": "joy love peace wonderful pleasure friend laughter happy",
    "unpleasant": "agony terrible horrible nasty evil war awful failure",
}
TESTS = (
    ("flowers", "insects", "pleasant", "unpleasant"),
    ("men's names", "women's names", "career", "family"),
    ("men", "women", "science", "arts"),
    ("European American", "African American", "pleasant", "unpleasant"),
    ("European American", "Arabic", "pleasant", "unpleasant"),
)
SENTENCES_ZH = "这是{}。", "那是{}。", "那里有{}。", "{}在这里。"
LISTS_ZH = {
    "flowers": "玫瑰 百合 牡丹 菊花 兰花 荷花 茉莉 桂花 梅花 桃花 樱花 月季 水仙 杜鹃 海棠 芍药 "
    "康乃馨 郁金香 紫罗兰 向日葵 丁香 薰衣草 栀子花 茶花",
    "insects": "蚂蚁 毛虫 跳蚤 蝗虫 蜘蛛 臭虫 蜈蚣 苍蝇 蛆 白蚁 蜜蜂 蟑螂 蚊子 蚜虫 甲虫 蟋蟀 "
    "马蜂 飞蛾 黄蜂 牛虻 象鼻虫 虱子 螳螂 蜱虫",
    "men's names": "建国 志强 国强 建军 伟强 浩然 子轩 俊杰",
    "women's names": "秀英 桂英 丽娟 淑芬 婷婷 雅婷 静怡 梦琪",
    "men": "男性 男人 男孩 哥哥 他 先生 父亲 儿子",
    "women": "女性 女人 女孩 姐姐 她 女士 母亲 女儿",
    "jobs of men": "工程师 修理工 水管工 电工 飞行员 程序员 司机 建筑工",
    "jobs of women": "护士 秘书 前台 保姆 美容师 幼师 导购 保洁",
    "Han": "建国 志强 国强 建军 伟强 浩然 子轩 俊杰 秀英 桂英 丽娟 淑芬 婷婷 雅婷 静怡 梦琪",
    "Uyghur": "阿里木 买买提 艾合买提 吐尔逊 库尔班 阿卜杜拉 艾尼瓦尔 玉素甫 古丽 阿依古丽 "
    "古丽娜尔 热依汗 帕提古丽 阿依夏木 米热古丽 迪丽努尔",
    "career": "高管 管理 职业 公司 薪水 办公室 商业 事业",
    "family": "家 父母 孩子 家庭 亲戚 婚姻 婚礼 亲人",
    "science": "科学 技术 物理 化学 爱因斯坦 航天局 实验 天文学",
    "arts": "诗歌 艺术 莎士比亚 舞蹈 文学 小说 交响乐 戏剧",
    "pleasant": "喜悦 爱 和平 美妙 快乐 朋友 笑声 幸福",
    "unpleasant": "痛苦 可怕 恐怖 恶心 邪恶 战争 糟糕 失败",
}
TESTS_ZH = (
    ("flowers", "insects", "pleasant", "unpleasant"),
    ("men's names", "women's names", "career", "family"),
    ("men", "women", "career", "family"),
    ("men", "women", "science", "arts"),
    ("jobs of men", "jobs of women", "men", "women"),
    ("Han", "Uyghur", "pleasant", "unpleasant"),
)
LANGUAGES = {"en": (SENTENCES, LISTS, TESTS), "zh": (SENTENCES_ZH, LISTS_ZH, TESTS_ZH)}
DRAWS = 10_000


def association(x: np.ndarray, y: np.ndarray) -> dict:
    """Compare two lists' words by how much nearer each is to one list than to another.

    Returns:
        The effect size d (the difference of the means, in standard deviations of all), its 95 %
        interval (both lists resampled), and the share of all ways to divide the words, or of
        10,000, in which the difference is at least as large.
    """
    both, n, rng = np.concatenate([x, y]), len(x), np.random.default_rng(0)

    def effect(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        spread = np.concatenate([x, y], axis=-1).std(axis=-1, ddof=1)
        return (x.mean(axis=-1) - y.mean(axis=-1)) / spread

    if comb(2 * n, n) <= 2 * DRAWS:
        chosen = np.array([*combinations(range(2 * n), n)])
    else:
        chosen = np.argsort(rng.random((DRAWS, 2 * n)), axis=1)[:, :n]
        chosen[0] = np.arange(n)
    sums = both[chosen].sum(axis=1)
    draws = [each[rng.integers(n, size=(DRAWS, n))] for each in (x, y)]
    interval = np.quantile(effect(*draws), [0.025, 0.975])
    p_value = float((sums >= x.sum() - 1e-9).mean())
    return {"d": float(effect(x, y)), "interval": tuple(interval.tolist()), "p": p_value}


def associations(path: str, language: str, prompt: str | None = None) -> dict[str, dict]:
    """Run all tests on a model's vectors of words alone, and in sentences."""
    model, found = load_sentence_transformer(path), {}
    sentences, lists, tests = LANGUAGES[language]
    for form, templates in (("words", ("{}",)), ("sentences", sentences)):

        def embed(name: str, templates: Sequence[str] = templates) -> np.ndarray:
            texts = [one.format(word) for word in lists[name].split() for one in templates]
            vectors = model.encode(texts, prompt=prompt, normalize_embeddings=True)
            return vectors.reshape(-1, len(templates), vectors.shape[-1])

        for first, second, near, far in tests:
            axis = embed(near).mean(axis=(0, 1)) - embed(far).mean(axis=(0, 1))
            scores = [embed(name).mean(axis=1) @ axis for name in (first, second)]
            found[f"{first}, {second}: {near}, {far}; {form}"] = association(*scores)
    return found


def main() -> None:
    """Measure, print a Markdown table and save the figures."""
    parser = ReportParser(__doc__, "associations", "language")
    parser.add_argument("--language", choices=LANGUAGES, default="en")
    parser.add_argument("--models", nargs="+", required=True, help="as in scripts/evaluate.py")
    parser.add_argument("--prompts", nargs="+", default=[], help="as in scripts/evaluate.py")
    given = parser.parse_args()
    paths = EvaluationArguments.model_paths(given)
    prompts = dict(zip(paths, given.prompts or [None] * len(paths), strict=True))
    found = {
        name: associations(path, given.language, prompts[name]) for name, path in paths.items()
    }
    rows = [
        [test, *(f"{each[test]['d']:.2f} (p {each[test]['p']:.3f})" for each in found.values())]
        for test in next(iter(found.values()))
    ]
    print(layout(["test", *found], rows, left=[0]))
    save_report(given.output, found)


if __name__ == "__main__":
    main()
