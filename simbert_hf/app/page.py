"""A web page to try a model: paraphrase, compare, and search an FAQ (extra ``app``)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import wraps
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from simbert_hf import CHINESE_MODEL, DEFAULT_MODEL
from simbert_hf.app.tools import (
    MAX_BYTES,
    MAX_ROWS,
    MAX_WRITTEN,
    Session,
    check_text,
    compare,
    describe,
    open_session,
    paraphrase,
    read_upload,
)
from simbert_hf.generation.synonyms import DIVERSITY, FOREIGN, is_foreign, load
from simbert_hf.generation.writing import check_can_write
from simbert_hf.index import FaqIndex
from simbert_hf.index.replies import Reply
from simbert_hf.modeling.simbert import SimBert
from simbert_hf.utils.extras import require
from simbert_hf.utils.text import counted
from simbert_hf.utils.textfiles import DataError

gr = require("gradio", "app,index")
require("faiss", "app,index")

WAITING = 200  # visitors in the queue, at most
KEPT = 3600  # seconds that a visitor's FAQ is kept, or a file that nobody has read
SWEEP = 600  # seconds between two sweeps for such files
QUICK = "quick"  # turns of their own for what would otherwise wait for paraphrases
EXAMPLE = [
    {"question": question, "answer": answer}
    for answer, questions in {
        "Press 'forgot password' on the login page.": (
            "how can i reset my password?",
            "i forgot my password",
            "what do i do when i can't log in?",
        ),
        "Cards arrive within five working days.": (
            "when will my card arrive?",
            "how long does delivery of a card take?",
        ),
        "Call us at once, and we block it.": (
            "my card was stolen",
            "i lost my card",
        ),
        "Transfers inside the country are free.": ("what does a transfer cost?",),
    }.items()
    for question in questions
]
THRESHOLD, CHINESE_THRESHOLD = 0.6, 0.92  # to begin with, where none is calibrated
EXPANDED = "document.querySelector('#options > button').setAttribute('aria-expanded', {})"
FOCUS = "input[type=range]:focus-visible { outline: auto !important }"  # Gradio shows none


def make_page(model: SimBert, index: FaqIndex | None = None) -> Any:
    """Lay out the page, for an index or for visitors' FAQs."""
    with gr.Blocks(title="simbert_hf", delete_cache=(SWEEP, KEPT)) as page:
        gr.Markdown("# SimBERT\nOne model: it writes paraphrases, compares texts, searches an FAQ.")
        with gr.Tab("Paraphrase"):
            _paraphrase_tab(model)
        with gr.Tab("Compare"):
            _compare_tab(model)
        with gr.Tab("FAQ"):
            _faq_tab(model) if index is None else _index_tab(index)
    page.queue(max_size=WAITING, default_concurrency_limit=1)
    return page


def launch(
    model: str | os.PathLike[str] | SimBert = DEFAULT_MODEL,
    *,
    index: str | os.PathLike[str] | FaqIndex | None = None,
    host: str | None = None,
    port: int | None = None,
    **options: Any,
) -> None:
    """Serve the page until it is interrupted.

    Args:
        model: A ``SimBert``, a directory or a Hub id.
        index: Answers on the page and at ``/answer``; a ``FaqIndex`` or its directory. If None,
            visitors upload their own FAQs.
        host: Address to listen on; Gradio's default is this machine only.
        port: Port to listen on.
        **options: Further options of Gradio's ``launch``.

    Raises:
        OSError: If the model or the index cannot be loaded, or the port is not available.
        ValueError: If the model cannot generate, there is no complete index, or the port is out of
            range.
    """
    if port is not None and not 0 < port < 2**16:
        raise ValueError(f"port={port!r} is out of range: it must be from 1 to {2**16 - 1}.")
    for told in ("GRADIO_ANALYTICS_ENABLED", "GRADIO_RUN_HISTORY"):  # elsewhere, by default
        os.environ.setdefault(told, "False")
    loaded = model if isinstance(model, SimBert) else load(model)
    check_can_write(loaded)
    if isinstance(index, str | os.PathLike):
        folder = index
        try:
            index = FaqIndex.load(folder, loaded)
        except DataError:  # built by a model other than the page's
            index = FaqIndex.load(folder)
    place = {"server_name": host, "server_port": port, "theme": _legible(), "css": FOCUS}
    try:
        page = make_page(loaded, index)
        page.launch(**{**place, **options}, max_file_size=MAX_BYTES, show_error=True)
    except OSError as error:
        if "empty port" not in str(error):
            raise
        raise OSError(
            f"The page cannot listen on {host or '127.0.0.1'}, port {port or '7860 or the next'}: "
            "the port is in use, or the address is not this machine's. Choose another --port "
            "(port=) or --host (host=)."
        ) from None


def _legible() -> Any:
    """Return Gradio's theme, with enough contrast (4.5) for its pale texts and buttons too.

    Its own fonts of weight 600 lack most Latin letters.
    """
    font = gr.themes.LocalFont("Source Sans Pro", weights=(400, 700)), "sans-serif"
    return gr.themes.Default(font=font, font_mono=font).set(
        body_text_color_subdued="*neutral_500",
        color_accent="*slider_color",
        slider_color="*primary_700",
        slider_color_dark="*primary_500",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
    )


def _with_messages(function: Callable[..., Any]) -> Callable[..., Any]:
    """Show errors about an input as messages on the page."""

    @wraps(function)
    def called(*args: Any) -> Any:
        try:
            return function(*args)
        except ValueError as error:
            raise gr.Error(_as_html(str(error)), print_exception=False) from None

    return called


def _as_html(message: str) -> str:
    """Escape a message: the page shows it as HTML, and it may quote a file of somebody else's."""
    return escape(message, quote=False)


def _wire(
    button: Any,
    fields: Sequence[Any],
    function: Callable[..., Any],
    concurrency_id: str = "model",
    **wiring: Any,
) -> Any:
    """Run a function on a click, or on Enter in a field, in turn with others of its kind."""
    triggers = [button.click, *(field.submit for field in fields)]
    mode = "always_last" if fields else "once"  # a sentence given meanwhile comes next
    wiring |= {"concurrency_id": concurrency_id, "trigger_mode": mode}
    return gr.on(triggers, _with_messages(function), **wiring)


def _slider(lowest: float, highest: float, start: float, **options: Any) -> Any:
    """Lay out a slider that goes back to its start when its number is cleared."""
    slider = gr.Slider(lowest, highest, start, **options)
    kept = f"(given) => Math.min(Math.max(given ?? {start}, {lowest}), {highest})"
    slider.release(None, slider, slider, js=kept)
    return slider


def _paraphrase_tab(model: SimBert) -> None:
    text = gr.Textbox("how can i reset my password?", label="Sentence")
    button = gr.Button("Paraphrase", variant="primary")
    with gr.Accordion("Options", open=False, elem_id="options") as options, gr.Row():
        n = _slider(1, MAX_WRITTEN, 50, step=1, label="Written", info="More take longer.")
        k = _slider(1, 50, 10, step=1, label="Shown", info="The best of them.")
        diversity = _slider(
            0, 1, DIVERSITY, step=0.05, label="Diversity", info="0 ranks by score alone."
        )
    for on, told in ((gr.on, "false"), (options.expand, "true"), (options.collapse, "false")):
        on(fn=None, js=f"() => {EXPANDED.format(told)}")
    table = gr.Dataframe(
        headers=["Paraphrase", "Score", "Cosine"],
        column_widths=["50%", "25%", "25%"],
        label="Best first, each unlike those before",
        wrap=True,
    )
    plain = gr.Textbox(label="As text", lines=6)

    def run(text: str, n: int, k: int, diversity: float) -> tuple[list[list[Any]], str]:
        rows = paraphrase(model, text, n, k, diversity=diversity)
        if is_foreign(model, text):
            gr.Warning(FOREIGN)
        return rows, "\n".join(row[0] for row in rows)

    _wire(
        button,
        [text],
        run,
        inputs=[text, n, k, diversity],
        outputs=[table, plain],
        api_name="paraphrase",
    )


def _compare_tab(model: SimBert) -> None:
    with gr.Row():
        one = gr.Textbox("where is the station?", label="First sentence")
        other = gr.Textbox("how do i get to the train?", label="Second sentence")
    button = gr.Button("Compare", variant="primary")
    cosine = gr.Number(label="Cosine", precision=4)
    _wire(
        button,
        [one, other],
        lambda one, other: compare(model, one, other),
        inputs=[one, other],
        outputs=cosine,
        api_name="compare",
        concurrency_id=QUICK,
    )


def _faq_tab(model: SimBert) -> None:
    session = gr.State(None, time_to_live=KEPT)
    gr.Markdown(
        f"A CSV, TSV or JSONL file with columns `question` and `answer`, at most {MAX_ROWS:,} "
        "rows; several may share an answer. The file is deleted as soon as it is read, or after "
        "about an hour if it is not used; its rows stay in memory for an hour."
    )
    with gr.Row():
        file = gr.File(label="FAQ", file_types=[".csv", ".tsv", ".jsonl"])
        with gr.Column():
            load = gr.Button("Use the file")
            example = gr.Button("Use an example")
            about = gr.Markdown()
    query = gr.Textbox("i can't log in", label="Query")
    threshold = _slider(0, 1, THRESHOLD, step=0.01, label="Threshold")
    precision = gr.Markdown()
    found = _search_button(query, _answer, [session, query, threshold])
    plot = gr.ScatterPlot(
        x="x", y="y", color="answer", tooltip=["question", "answer"], height=360, title="Map",
        x_title="first principal component", y_title="second", visible=False,
    )  # fmt: skip
    opened: dict[str, Any] = {
        "outputs": [session, about, precision, threshold, plot, *found],
        "api_visibility": "private",
    }

    def use_file(path: str | None, threshold: float) -> tuple[Any, ...]:
        if path is None:
            raise ValueError("Choose a file first.")
        return _opened(open_session(model, read_upload(path)), threshold)

    def use_example(threshold: float) -> tuple[Any, ...]:
        return _opened(open_session(model, EXAMPLE), threshold)

    for opening in (
        _wire(load, [], use_file, inputs=[file, threshold], **opened),
        _wire(example, [], use_example, inputs=threshold, **opened),
    ):  # a map that stays visible keeps the colours of the previous answers
        opening.then(lambda: gr.ScatterPlot(visible=True), outputs=plot, api_visibility="private")
    threshold.change(  # and not release, which the arrow keys do not trigger
        _precision, inputs=[session, threshold], outputs=precision, show_progress="hidden",
        api_visibility="private", js=f"(session, threshold) => [session, threshold ?? {THRESHOLD}]",
    )  # fmt: skip


def _index_tab(index: FaqIndex) -> None:
    known = index.calibration
    size = counted(len(index), "question")
    gr.Markdown(f"{size}; the threshold is {'' if known else 'not '}calibrated.")
    query = gr.Textbox(label="Query")
    start = math.ceil(1000 * known.threshold) / 1000 if known else _start(index)
    threshold = _slider(-1, max(1, start), start, step=0.001, label="Threshold")
    _search_button(
        query,
        lambda query, threshold: _shown(index.answer(query, threshold=threshold)),
        [query, threshold],
    )

    def answer(query: str, threshold: float | None = None) -> dict[str, Any]:
        if not isinstance(query, str):
            raise ValueError("Give one query, as a string.")
        return asdict(index.answer(query, threshold=threshold))

    gr.api(_with_messages(answer), api_name="answer", concurrency_id=QUICK)


def _search_button(query: Any, answer: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """Lay out a search button, and below it the components for the results, which are returned."""
    search = gr.Button("Search", variant="primary")
    reply = gr.Textbox(label="Answer", interactive=False)
    hits = gr.Dataframe(
        headers=["Score", "Answer", "Nearest question"],
        column_widths=["25%", "40%", "35%"],
        label="Best",
        wrap=True,
    )
    found = [reply, hits]
    _wire(
        search, [query], answer, concurrency_id=QUICK,
        inputs=inputs, outputs=found, api_visibility="private",
    )  # fmt: skip
    return found


def _shown(reply: Reply) -> tuple[str, list[list[Any]]]:
    rows = [[round(hit.score, 3), hit.answer, hit.question] for hit in reply.hits]
    return reply.answer or f"No answer. {reply.reason}", rows


def _start(index: FaqIndex) -> float:
    """Return the threshold to begin with, by the index's model."""
    chinese = index.encoder.model.name_or_path == CHINESE_MODEL
    return CHINESE_THRESHOLD if chinese else THRESHOLD


def _opened(session: Session, threshold: float) -> tuple[Any, ...]:
    """Return what opening an FAQ changes on the page, and show what to know about its rows."""
    for warning in session.warnings:
        gr.Warning(_as_html(warning))
    faqs = session.index.faqs()
    answers = {faq.answer for faq in faqs}
    frame = pd.DataFrame(np.round(session.places, 4), columns=["x", "y"])
    frame["question"] = [faq.question for faq in faqs]
    frame["answer"] = [faq.answer[:60] for faq in faqs]
    about = f"{counted(len(faqs), 'question')}, {counted(len(answers), 'answer')}."
    start = _start(session.index)
    if start == CHINESE_THRESHOLD:
        about += f" The Chinese model's cosines are high: a threshold of about {start} suits it."
    moved = gr.skip()
    if threshold in (THRESHOLD, CHINESE_THRESHOLD) and threshold != start:  # not a visitor's own
        moved = threshold = start
    precision = describe(session.calibration, threshold)
    return session, about, precision, moved, gr.ScatterPlot(frame, visible=False), "", []


def _precision(session: Session | None, threshold: float) -> str:
    return "" if session is None else describe(session.calibration, threshold)


def _answer(session: Session | None, query: str, threshold: float) -> tuple[str, list[list[Any]]]:
    if session is None:
        raise ValueError("Choose 'Use the file' or 'Use an example' first.")
    text = check_text(session.index.encoder.model, query)
    return _shown(session.index.answer(text, threshold=threshold))
