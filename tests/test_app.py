import asyncio
import gc
import json
import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL
from simbert_hf.app import tools
from simbert_hf.app.tools import (
    MAX_CHARS,
    MAX_ROWS,
    MAX_WRITTEN,
    _unlogged,
    check_text,
    compare,
    describe,
    leave_one_out,
    main_directions,
    model_for,
    open_session,
    paraphrase,
    read_upload,
)
from simbert_hf.generation.synonyms import Paraphrase
from simbert_hf.index import Calibration, Faq, FaqIndex
from simbert_hf.utils.textfiles import DataError
from tests.tiny import WORDS, tiny_simbert

ROOT = Path(__file__).parents[1]
FAQS = [
    {"question": "how do i reset my password", "answer": "Press 'forgot'."},
    {"question": "i forgot my password", "answer": "Press 'forgot'."},
    {"question": "when does my card come", "answer": "Soon."},
]


def test_what_the_page_shows_is_what_the_model_gives() -> None:
    model = tiny_simbert()
    rows = paraphrase(model, "  how can i reset my password ", 12, 4, diversity=0.5)
    found = model.gen_synonyms("how can i reset my password", 12, 4, diversity=0.5)
    assert [row[0] for row in rows] == found
    scored = model.gen_synonyms(
        "how can i reset my password", 12, 4, return_scores=True, diversity=0.5
    )
    assert [row[1:] for row in rows] == [
        [round(p.score, 3), round(p.similarity, 3)] for p in scored
    ]
    vectors = model.encode(["one text", "other"])
    assert compare(model, "one text", "other") == pytest.approx(float(vectors[0] @ vectors[1]))


def test_an_faq_is_measured_by_asking_each_question_without_it() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    answers = [str(i) for i in [0, 0, 0, 1, 1, 2, 3, 3, 4, 5, *[6] * 10]]
    found = leave_one_out([Faq(f"q{i}", answer) for i, answer in enumerate(answers)], vectors)
    for i, answer in enumerate(answers):
        others = [j for j in range(20) if j != i]
        scores = [float(vectors[i] @ vectors[j]) for j in others]
        best = others[int(np.argmax(scores))]
        kind = 2 if answers.count(answer) == 1 else int(answers[best] != answer)
        assert found.kinds[i] == kind
        assert found.scores[i] == pytest.approx(max(scores), abs=1e-6)
    assert "questions that no other row answers" in describe(found, 0.5)
    assert found.threshold == pytest.approx(float(np.median(found.scores)))
    alike = leave_one_out([Faq("a", "1"), Faq("b", "1")], np.eye(2, dtype=np.float32))
    assert describe(alike, -1).endswith(
        "itself: 100% [16%, 100%] of the questions that another row answers get an answer; "
        "100% [16%, 100%] of all answers are right."
    )  # and no word of those that no other row answers, as there are none


def test_a_group_is_none_of_the_answers_that_are_named_as_it() -> None:
    faqs = [Faq("is it late", "Yes."), Faq("is it far", "No.", group="Yes.")]
    alone = leave_one_out(faqs, np.eye(2, dtype=np.float32))
    assert alone.at(-1).false_accepts.count == 2  # neither has another question


def test_the_map_keeps_the_two_widest_directions() -> None:
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(30, 5)) * [5, 3, 0.1, 0.1, 0.1] + [0, 0, 9, 0, -9]).astype(
        np.float32
    )
    places = main_directions(vectors)
    gaps = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1)
    assert np.allclose(np.linalg.norm(places[:, None] - places[None], axis=-1), gaps, atol=0.5)
    assert main_directions(vectors[:1]).shape == (1, 2)


@pytest.fixture
def upload(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def written(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return written


def test_an_upload_becomes_an_index(upload: Callable[[str, bytes], Path]) -> None:
    content = b"\xef\xbb\xbfquestion,answer\r\n" + b"".join(
        f'{row["question"]},"{row["answer"]}"\r\n'.encode() for row in FAQS
    )
    rows = read_upload(upload("faq.csv", content))
    assert rows == [Faq(**row) for row in FAQS]
    session = open_session(tiny_simbert(), rows)
    assert session.index.search("how do i reset my password", k=1)[0].answer == "Press 'forgot'."
    assert session.places.shape == (3, 2)
    line = '{"question": "a\u2028b", "answer": "b"}\r\n\n'.encode()
    assert read_upload(upload("faq.jsonl", line)) == [Faq("a\u2028b", "b")]
    table = b'question\tanswer\n"open?\tyes\nclosed?\t5" wide\n'
    assert read_upload(upload("faq.tsv", table)) == [
        Faq('"open?', "yes"),
        Faq("closed?", '5" wide'),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"x" * 2_000_001, "The file has 2,000,001 bytes"),
        ("a.csv", b"question,answer\n\xff,b\n", "a.csv:2: is not UTF-8 at byte 0"),
        ("a.csv", b'question,answer\n"a,b\n', "a.csv:2: is not valid CSV"),
        ("a.jsonl", b'{"question": "a", "answer": "b"}\n[2]\n', "a.jsonl:2: holds [2]"),
        ("a.tsv", b"question\tanswer\na\n", "a.tsv:2: has 1 cell instead of"),
        (
            "a.csv",
            b"q,a\nb,c\n",
            "a.csv:1: has no column 'question', only ['q', 'a']. Rename yours.",
        ),
        ("a.csv", b"question,answer\n" + b"a,b\n" * (MAX_ROWS + 1), "The file has 2,001 rows"),
    ],
)
def test_an_unfit_upload_is_said_so(
    upload: Callable[[str, bytes], Path], name: str, content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}") as error:
        read_upload(upload(name, content))
    assert "--" not in str(error.value)  # a flag, which visitors have not


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "问题,答案\n怎么退货,在订单里\n".encode("gb18030"), "in Excel, as 'CSV UTF-8'."),
        ("a.csv", "question,answer\nthe café?,a\n".encode("cp1252"), "in Excel, as 'CSV UTF-8'."),
        ("a.csv", b"PK\x03\x04", "not UTF-8 text. Save it as UTF-8: in Excel, as 'CSV UTF-8'."),
        ("a.jsonl", b'[{"question": "a", "answer": "b"}]', "Write one object per line."),
        ("a.jsonl", b"[2]", "Write one JSON object per line."),
    ],
)
def test_a_visitor_is_told_what_helps_without_a_shell(
    upload: Callable[[str, bytes], Path], name: str, content: bytes, told: str
) -> None:
    with pytest.raises(DataError, match=f"{re.escape(told)}$"):
        read_upload(upload(name, content))


def test_a_visitors_faq_in_an_unknown_language_is_refused_without_flags() -> None:
    with pytest.raises(DataError, match=r"Build .* with a model trained on their language\.$"):
        open_session(tiny_simbert(), [{"question": "где мой заказ", "answer": "там"}])


@pytest.mark.filterwarnings("ignore:Half or more")
def test_the_english_page_takes_the_chinese_model_for_chinese(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, chinese = tiny_simbert(), tiny_simbert(initializer_range=0.5)
    monkeypatch.setattr(tools, "load", {CHINESE_MODEL: chinese}.get)
    assert model_for(model, ["怎么退货"]) is model  # somebody's own, which may know Chinese
    model.name_or_path = DEFAULT_MODEL
    assert model_for(model, ["怎么退货"]) is chinese
    assert model_for(model, ["怎么退货", "a cat"]) is model_for(model, ["10", None]) is model
    monkeypatch.setattr(tools, "check_text", lambda _, text: {"猫": "a cat"}.get(text, "a dog"))
    vectors = chinese.encode(["a cat", "a dog"])
    assert compare(model, "猫", "狗") == pytest.approx(float(vectors[0] @ vectors[1]))
    found = paraphrase(model, "猫", 12, 4)
    assert [row[0] for row in found] == chinese.gen_synonyms("a cat", 12, 4)
    monkeypatch.setattr("simbert_hf.index.encoding.check_read", lambda *_: None)
    rows = [{"question": question, "answer": "a"} for question in ("怎么退货", "怎么换货", "a cat")]
    assert open_session(model, rows).index.encoder.model is chinese
    assert open_session(model, rows[1:]).index.encoder.model is model


def test_a_chinese_faq_begins_with_a_high_threshold() -> None:
    gradio = pytest.importorskip("gradio")
    from simbert_hf.app.page import EXAMPLE, _opened, make_page

    model = tiny_simbert()
    session = open_session(model, EXAMPLE)
    assert _opened(session, 0.92)[3] == 0.6
    assert _opened(session, 0.6)[2].startswith("At 0.60")
    model.name_or_path = CHINESE_MODEL
    told, precision, threshold = _opened(session, 0.6)[1:4]
    assert threshold == 0.92
    assert "threshold of about 0.92" in told
    assert precision.startswith("At 0.92")
    assert _opened(session, 0.7)[3] == gradio.skip()  # the visitor's own
    parts = in_a_loop(make_page, model, session.index).config["components"]
    assert 0.92 in [part["props"].get("value") for part in parts if part["type"] == "slider"]


def test_the_page_says_that_the_english_model_cannot_write_german(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app.page import make_page

    model = tiny_simbert()
    page = in_a_loop(make_page, model)
    (asked,) = [one for one in page.fns.values() if one.api_name == "paraphrase"]
    found = [Paraphrase("a cat", 0.5, 0.5, 0.0, 0.0)]
    monkeypatch.setattr(model, "gen_synonyms", lambda *_, **__: found)
    german, english = "wie wird das wetter morgen", "how can i reset my password"
    asked.fn(german, 12, 4, 0.2)  # somebody's own model, which may know German
    model.name_or_path = DEFAULT_MODEL
    asked.fn(english, 12, 4, 0.2)
    with pytest.warns(UserWarning, match="paraphrases of other languages are broken"):
        asked.fn(german, 12, 4, 0.2)


def test_as_many_rows_and_paraphrases_as_are_allowed(
    upload: Callable[[str, bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(read_upload(upload("a.csv", b"question,answer\n" + b"a,b\n" * MAX_ROWS))) == MAX_ROWS
    model, asked = tiny_simbert(), []
    monkeypatch.setattr(model, "gen_synonyms", lambda text, n, k, **_: asked.append((n, k)))
    for n, k in ((MAX_WRITTEN + 1, 5), (3, 5), (0, 0), (9, 4)):
        with suppress(ValueError):
            paraphrase(model, "a cat", n, k)
    assert asked == [(MAX_WRITTEN, 5), (3, 3), (1, 1), (9, 4)]


@pytest.mark.parametrize("content", [b"question,answer\na,b\n", b"\xff", b"x" * 2_000_001])
def test_an_upload_does_not_stay_on_the_disk(
    upload: Callable[[str, bytes], Path], content: bytes
) -> None:
    path = upload("faq.csv", content)
    with suppress(DataError):
        read_upload(path)
    assert not path.exists()
    with pytest.raises(DataError, match="choose it again"):
        read_upload(path)


@pytest.mark.filterwarnings("ignore:Half or more")
def test_a_visitor_and_not_the_log_is_told_what_quotes_an_faq(
    upload: Callable[[str, bytes], Path], caplog: pytest.LogCaptureFixture
) -> None:
    content = "question,answer\nis it late,yes\nis it late,no\nwhere is my card,here\n你好吗,yes\n"
    session = open_session(tiny_simbert(), read_upload(upload("faq.csv", content.encode())))
    several, foreign = session.warnings
    assert several.endswith("several, equally near answers: 1, such as 'is it late'")
    assert "1 of 4 questions, such as '你好吗'" in foreign
    assert caplog.text == ""
    with ThreadPoolExecutor(1) as pool, _unlogged() as told:  # another thread's are logged
        pool.submit(FaqIndex.build, tiny_simbert(), session.index.faqs()).result()
    assert told == []
    assert "'你好吗'" in caplog.text
    FaqIndex.build(tiny_simbert(), session.index.faqs())
    assert caplog.text.count("'你好吗'") == 2


def test_texts_are_limited() -> None:
    model = tiny_simbert()
    with pytest.raises(ValueError, match="Write a sentence"):
        compare(model, " ", "a")
    with pytest.raises(ValueError, match="Write a sentence"):
        compare(model, "a", None)
    with pytest.raises(ValueError, match="501 characters"):
        paraphrase(model, "a" * (MAX_CHARS + 1), 5, 5)
    assert (
        check_text(model, "a " * (MAX_CHARS // 2 - 1) + "ab") == "a " * (MAX_CHARS // 2 - 1) + "ab"
    )
    with pytest.raises(ValueError, match="holds half a character"):
        paraphrase(model, "a \ud83d", 5, 5)
    with pytest.raises(ValueError, match="does not know half"):
        compare(model, "a cat", "你好")


def test_where_only_copies_are_written_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_simbert()
    monkeypatch.setattr(model, "gen_synonyms", lambda *_, **__: [])
    with pytest.raises(ValueError, match="split a long sentence, or increase Written"):
        paraphrase(model, "a cat", 5, 5)


def in_a_loop(call: Callable[..., Any], *given: Any) -> Any:
    """Call where an event loop runs: else Gradio opens one, for another test to find unclosed."""

    async def called() -> Any:
        return call(*given)

    return asyncio.run(called())


def test_the_documented_calls_give_the_page_all_it_takes() -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app.page import make_page

    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    assert f"refuse texts of more than {MAX_CHARS} characters" in " ".join(text.split())
    assert f"number to write ({MAX_WRITTEN} at most)" in text

    model = tiny_simbert()
    index = FaqIndex.build(model, [Faq("where is the cat", "Here.")])
    described = in_a_loop(make_page, model, index).get_api_info()["named_endpoints"]
    taken = {name: len(about["parameters"]) for name, about in described.items()}
    by_curl = re.findall(r"call(/\w+) \\\n.*'{\"data\": (\[.*\])}'", text)
    in_python = re.findall(r"predict\((.*), api_name=\"(.*)\"", text)
    given = {name: len(json.loads(values)) for name, values in by_curl}
    assert given
    assert given.items() <= taken.items()
    assert {name: len(json.loads(f"[{values}]")) for values, name in in_python} == taken


def test_a_reply_is_plain_json_for_the_documented_service() -> None:
    encoders = pytest.importorskip("fastapi.encoders")
    index = FaqIndex.build(tiny_simbert(), [Faq("where is the cat", "Here.")])
    sent = encoders.jsonable_encoder(index.answer("where is the cat", threshold=0.5))
    assert json.loads(json.dumps(sent))["answer"] == "Here."
    assert [hit["question"] for hit in sent["hits"]] == ["where is the cat"]


def test_enter_asks_in_turn_and_another_faq_clears_what_the_one_before_it_answered() -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app.page import EXAMPLE, _opened, make_page

    model = tiny_simbert()

    page = in_a_loop(make_page, model)
    turns = {str(one.api_name): one.concurrency_id for one in page.fns.values()}
    assert turns["paraphrase"] == turns["use_file"] != turns["compare"] == turns["_answer"]
    wires = page.config["dependencies"]
    asking = [wire for wire in wires if "submit" in [event for _, event in wire["targets"]]]
    assert [len(wire["targets"]) for wire in asking] == [2, 3, 2]  # a button and its fields
    modes = {wire["api_name"]: wire["trigger_mode"] for wire in wires}
    assert {modes[wire["api_name"]] for wire in asking} == {"always_last"}  # Enter while it writes
    assert modes["use_file"] == "once"  # which is deleted
    (moved,) = [wire for wire in wires if "change" in [event for _, event in wire["targets"]]]
    assert "?? 0.6" in moved["js"]  # the number was cleared
    (plot,) = [one for one in page.blocks.values() if type(one).__name__ == "ScatterPlot"]
    assert not plot.visible  # while there is nothing to show
    boxes = [one["props"] for one in page.config["components"] if one["type"] == "textbox"]
    assert not any(box.get("max_length") for box in boxes)  # which cuts a long text unsaid
    search = asking[-1]
    (example,) = [wire for wire in wires if len(wire["inputs"]) == 1 and len(wire["outputs"]) == 7]
    assert example["outputs"][-2:] == search["outputs"]
    assert _opened(open_session(model, EXAMPLE), 0.6)[-2:] == ("", [])


@pytest.mark.parametrize("is_index", [False, True])
def test_a_cleared_number_goes_back_to_where_it_was_and_the_fold_says_if_it_is_open(
    is_index: bool,
) -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app.page import make_page

    model = tiny_simbert()
    page = in_a_loop(make_page, model, FaqIndex.build(model, FAQS) if is_index else None)
    parts = {part["id"]: part for part in page.config["components"]}
    kept, told = {}, {}
    for wire in page.config["dependencies"]:
        for number, event in wire["targets"]:
            if event == "release":
                assert wire["inputs"] == wire["outputs"] == [number]
                kept[number] = wire["js"]
            if "aria-expanded" in str(wire["js"]):
                told[event] = re.findall("true|false", wire["js"])
    sliders = [part for part in parts.values() if part["type"] == "slider"]
    assert len(sliders) == 4
    for slider in sliders:
        value, lowest, highest = (slider["props"][name] for name in ("value", "minimum", "maximum"))
        assert f"given ?? {value}, {lowest}), {highest})" in kept[slider["id"]]
    assert told == {"load": ["false"], "expand": ["true"], "collapse": ["false"]}
    (fold,) = [part["props"] for part in parts.values() if part["type"] == "accordion"]
    assert (fold["elem_id"], fold["open"]) == ("options", False)


def test_the_page_answers_as_the_index_does_at_the_threshold_shown() -> None:
    gradio = pytest.importorskip("gradio")
    from simbert_hf.app.page import EXAMPLE, _answer, make_page

    model = tiny_simbert()
    index = FaqIndex.build(model, FAQS)
    scores = [0.61237, 0.61237, 0.2]
    index.calibration = Calibration(
        np.array(scores), np.array([0, 0, 2], dtype=np.int8), "precision", 0.9, scores[0], None
    )
    page = in_a_loop(make_page, model, index)
    private = [one for one in page.fns.values() if one.api_visibility == "private"]
    (search,) = [one for one in private if one.fn]
    query = "where does my card come"
    (best, *_) = index.search(query)
    assert search.fn(query, best.score - 0.01)[0] == best.answer
    refused, hits = search.fn(query, best.score + 0.01)
    assert refused.startswith("No answer. The best score, ")
    assert hits[0] == [round(best.score, 3), best.answer, best.question]
    (served,) = [one for one in page.fns.values() if one.api_name == "answer"]
    assert served.fn(query, best.score + 0.01)["answer"] is None
    with pytest.raises(gradio.Error, match="Give one query"):
        served.fn([query])
    slider = search.inputs[1]
    assert slider.value == 0.613  # at 0.612, more would be answered than was calibrated

    session = open_session(model, EXAMPLE)
    assert _answer(session, EXAMPLE[0]["question"], 0.99)[0] == EXAMPLE[0]["answer"]
    assert _answer(session, EXAMPLE[0]["question"], 1.01)[0].startswith("No answer. ")
    with pytest.raises(ValueError, match="501 characters"):
        _answer(session, "a" * (MAX_CHARS + 1), 0.5)


def test_the_page_keeps_what_a_visitor_brings_no_longer_than_it_says(monkeypatch) -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app import page

    laid = in_a_loop(page.make_page, tiny_simbert())
    (state,) = [one for one in laid.blocks.values() if type(one).__name__ == "State"]
    assert state.time_to_live == 3600 == laid.delete_cache[1]  # "for an hour", it says
    assert laid._queue.max_size == 200
    named = [about["api_name"] for about in laid.config["dependencies"]]
    shown = [name.removeprefix("/") for name in laid.get_api_info()["named_endpoints"]]
    assert shown == ["paraphrase", "compare"]
    assert {"use_file", "use_example", "_answer"} < set(named)
    telling = ("GRADIO_ANALYTICS_ENABLED", "GRADIO_RUN_HISTORY")
    for name in telling:
        monkeypatch.setenv(name, "")  # as it is without this test, afterwards
        monkeypatch.delenv(name)
    served = Silent()
    monkeypatch.setattr(page, "make_page", lambda *_: served)
    page.launch(tiny_simbert(), share=True, theme="mine", port=7861)
    assert served.options == {
        "server_name": None, "server_port": 7861, "max_file_size": 2_000_000, "show_error": True,
        "share": True, "theme": "mine", "css": page.FOCUS,
    }  # fmt: skip
    assert [os.environ[name] for name in telling] == ["False", "False"]
    monkeypatch.setenv(telling[0], "True")  # who wants to tell may
    page.launch(tiny_simbert())
    assert os.environ[telling[0]] == "True"


def test_the_page_can_be_read() -> None:
    """Gradio's own theme is paler, and has fonts without most letters."""
    pytest.importorskip("gradio")
    fonts = pytest.importorskip("fontTools.ttLib")
    from gradio.themes.utils.fonts import STATIC_FONTS_DIR

    from simbert_hf.app.page import _legible

    theme = _legible()
    css = theme._get_theme_css()
    files = set(re.findall(r"static/fonts/(.*?\.woff2)", css))
    assert len(files) == 2  # of regular and bold weight, for texts and tables
    for file in files:
        assert fonts.TTFont(STATIC_FONTS_DIR / file).getBestCmap().keys() >= set(range(32, 127))

    for name in ("color_accent", "body_text_color_subdued"):  # of the open tab; of labels
        assert contrast(theme._get_computed_value(name), "#ffffff") >= 4.5
        assert contrast(theme._get_computed_value(f"{name}_dark"), "#0f0f11") >= 4.5


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG defines it."""
    light = []
    for colour in (one, other):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        light.append(float(np.dot(linear, (0.2126, 0.7152, 0.0722))) + 0.05)
    return max(light) / min(light)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Gradio's: of pandas, and loops that it leaves open
def test_fifty_clients_at_once_each_get_their_own_answer() -> None:
    gradio_client = pytest.importorskip("gradio_client")
    from simbert_hf.app.page import make_page

    model = tiny_simbert()
    texts = [f"{a} {b} please" for a in WORDS[:10] for b in WORDS[20:25]]
    index = FaqIndex.build(model, FAQS)
    page = in_a_loop(make_page, model, index)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True)
    start = Barrier(len(texts))

    def ask(text: str) -> tuple[Any, float, dict[str, Any]]:
        # httpx would wait five seconds, which are too few for all at once on a busy core
        client = gradio_client.Client(url, verbose=False, httpx_kwargs={"timeout": 300})
        start.wait(timeout=300)
        try:
            written = client.predict(text, 12, 4, 0.2, api_name="/paraphrase")
            cosine = client.predict(text, "where is the cat", api_name="/compare")
            return written, cosine, client.predict(text, 0.9, api_name="/answer")
        finally:
            client.close()

    try:
        with ThreadPoolExecutor(len(texts)) as pool:
            found = list(pool.map(ask, texts))
    finally:
        page.close()
        gc.collect()  # the loops, before they are another test's
    for text, ((table, plain), cosine, reply) in zip(texts, found, strict=True):
        alone = paraphrase(model, text, 12, 4, diversity=0.2)
        assert table["data"] == alone
        assert plain == "\n".join(row[0] for row in alone)
        assert cosine == pytest.approx(compare(model, text, "where is the cat"), abs=1e-4)
        wanted = asdict(index.answer(text, threshold=0.9))
        assert (reply["answer"], reply["reason"]) == (wanted["answer"], wanted["reason"])
        assert [hit["id"] for hit in reply["hits"]] == [hit["id"] for hit in wanted["hits"]]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Gradio's, of a socket that it leaves open
def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app.page import launch

    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = rf"cannot listen on 127\.0\.0\.1, port {port}: .* another --port \(port=\)"
        with pytest.raises(OSError, match=message):
            in_a_loop(partial(launch, tiny_simbert(), port=port))
    gc.collect()  # the socket, before it is another test's


def test_what_cannot_be_served_is_said_so() -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app.page import launch

    model = tiny_simbert()
    with pytest.raises(ValueError, match="port=99999 is out of range"):
        launch(model, port=99999)
    model.has_lm_head = False
    with pytest.raises(ValueError, match=r"has no LM head to write with"):
        launch(model)


def test_an_index_is_served_also_where_its_model_has_moved(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("gradio")
    from simbert_hf.app import page

    tiny_simbert().save_pretrained(tmp_path / "model")
    FaqIndex.build(str(tmp_path / "model"), FAQS).save(tmp_path / "index")
    served: list[Any] = []
    monkeypatch.setattr(page, "make_page", lambda model, index: served.append(index) or Silent())
    page.launch(str(tmp_path / "model"), index=tmp_path / "index")
    (tmp_path / "model").rename(tmp_path / "moved")
    page.launch(str(tmp_path / "moved"), index=tmp_path / "index")
    assert [len(index) for index in served] == [len(FAQS)] * 2
    with pytest.raises(OSError, match="its model cannot be loaded"):
        page.launch(tiny_simbert(initializer_range=0.5), index=tmp_path / "index")


class Silent:
    """A page that serves nobody."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def launch(self, **options: Any) -> None:
        """End at once."""
        self.options = options


def test_messages_of_the_page_hold_no_html() -> None:
    """Gradio shows them as HTML, and a visitor's file may be somebody else's."""
    gradio = pytest.importorskip("gradio")
    from simbert_hf.app.page import _with_messages

    def refuse() -> None:
        raise ValueError("the question '<img src=//evil.example>' & more has no answer")

    with pytest.raises(gradio.Error) as raised:
        _with_messages(refuse)()
    assert raised.value.message == (
        "the question '&lt;img src=//evil.example&gt;' &amp; more has no answer"
    )
    assert not raised.value.print_exception  # else the log shows it, and what it quotes
