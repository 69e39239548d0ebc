"""Other languages than English and Chinese: guessed, and left alone by the rules for these two."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from torch import nn
from transformers import PreTrainedTokenizerFast

from simbert_hf import DEFAULT_MODEL, SimBert
from simbert_hf.encoders.text_encoder import TextEncoder
from simbert_hf.generation.languages import foreign_language
from simbert_hf.generation.marks import marks_as_in, plain_marks
from simbert_hf.generation.placeholders import hold_words
from simbert_hf.generation.sentences import split_sentences
from simbert_hf.generation.spelling import Spelling
from simbert_hf.generation.synonyms import is_foreign
from simbert_hf.generation.writing import Draft, keep_facts
from simbert_hf.rows import RowBuilder, check_texts
from simbert_hf.utils.text import fold, normalize_text, place_spaces
from tests.tiny import tiny_simbert, wordpiece_tokenizer


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wie kann ich mein Passwort ändern?", "de"),
        ("Ich will mein Konto sperren.", "de"),
        ("Perdí mi tarjeta.", "es"),
        ("Je n'arrive pas à me connecter.", "fr"),
        ("Waar is mijn pakket?", "nl"),
        ("Nie mogę się zalogować.", "pl"),
        ("Hesabıma giremiyorum.", "tr"),
        ("Şifremi Unuttum", "tr"),
        ("Tôi không đăng nhập được.", "vi"),
        ("Где моя посылка?", "ru"),
        ("أين طلبي؟", "ar"),
        ("제 주문은 어디에 있나요?", "ko"),
    ],
)
def test_languages_are_guessed(text: str, language: str) -> None:
    assert foreign_language(text) == language


def test_the_english_model_warns_once_of_other_languages(english: SimBert) -> None:
    texts = ["Waar is mijn pakket?", "Wo ist mein Paket?", "Où est mon colis ?"]
    settings: Any = {"n": 2, "max_new_tokens": 8}
    with pytest.warns(UserWarning, match="broken, and a text seems to be in one") as caught:
        english.gen_synonyms(texts, **settings)
    assert len(caught) == 1
    english.gen_synonyms("Where is my parcel?", **settings)
    with pytest.warns(UserWarning, match="tokens are unknown") as caught:  # by encode alone
        english.gen_synonyms("Где моя посылка?", **settings)
    assert len(caught) == 1
    other = SimBert.from_pretrained("simbert-minilm-en").train()  # may be learning Dutch
    other.gen_synonyms(texts, **settings)
    other.eval().name_or_path = "outputs/nl"
    other.gen_synonyms(texts, **settings)


@pytest.mark.parametrize(
    "text",
    [
        "Where is my card?",
        "reset password",
        "is the cafe in Los Angeles open",
        "Is El Niño in La Paz?",
        "take me to the Champs-Élysées",
        "What does the word 'nicht' mean?",
        "Tom met Mary three years ago.",
        "A white van drives through a flooded street",
        "Crowd gathers in Rio de Janeiro",
        "El Paso weather tomorrow",
        "book flight los angeles las vegas",
        "São Paulo weather",
        "flights to Zürich",
        "Nestlé fined in Köln",
        "crème brûlée recipe",
        "play La Vie en rose",
        "Al-Qaeda commander killed by drone strike",
        "EU ministers fail to reach agreement",
        "U.S. drone kills 4 militants in Pakistan",
        "Egypt's el-Sissi sworn in as president",
        "Pro-Russian protesters storm police station",
        "South Korea declares de facto end to MERS outbreak",
        "Parenting.com's top baby names",
        "How do you say спасибо большое in Dutch?",
        "我的卡在哪里？",
        "パスワードを忘れました。",
        "123",
    ],
)
def test_english_and_chinese_are_not_foreign(text: str) -> None:
    assert foreign_language(text) == ""


def test_the_english_model_cannot_write_japanese() -> None:
    model = tiny_simbert()
    assert not is_foreign(model, "iPhoneを買いたい")  # somebody's own, which may know it
    model.name_or_path = DEFAULT_MODEL
    assert is_foreign(model, "iPhoneを買いたい")
    assert is_foreign(model, "これはいくらですか？")
    assert is_foreign(model, "The Beatlesの曲を聞きたい")
    assert not is_foreign(model, "translate ありがとう to English")


@pytest.mark.parametrize(
    ("text", "paraphrases"),
    [
        ("Perdí mi tarjeta.", "He perdido mi tarjeta.|He extraviado la tarjeta."),
        ("Woher kommt dieser Fehler?", "Wo kommt dieser Fehler her?|Was ist die Ursache?"),
        ("Ich will mein Konto löschen.", "Bitte löschen Sie meinen Account.|Konto löschen."),
        ("Er det muligt at betale med kort?", "Kan man betale med kort her?|Tager I kort?"),
        ("Waar is mijn pakket?", "Kunt u mij vertellen waar mijn pakket is?|Waar is het?"),
        ("We zijn op zoek naar een huis.", "We zoeken een huis.|Wij zijn op zoek naar een huis."),
        ("Đơn hàng của tôi đang ở đâu?", "Tôi muốn biết đơn hàng của mình đang ở đâu.|Ở đâu?"),
        ("Где карта?", "Карта пропала. Где она?|Где моя карта?"),
        ("Der Preis stieg um 10 Prozent.", "Der Preis stieg um 10 %.|10 Prozent mehr ist es."),
        ("Los 50 dólares son para ti.", "Los $50 son para ti.|Son para ti los 50 dólares."),
        ("Die Rechnung über 1.234,56 € ist da.", "Die Rechnung über 1234,56 Euro ist da."),
        ("Il coûte 1 500 € par mois.", "Il coûte 1500 € par mois.|C'est 1 500 euros par mois."),
        ("Билет стоит 50 долларов.", "Билет стоит $50.|Цена билета — 50 долларов."),
        ("टिकट ५०० रुपये का है।", "टिकट 500 रुपये का है।|टिकट का दाम ₹५०० है।"),
        ("أين طلبي رقم ١٢٣٤؟", "أين طلبي رقم 1234؟|أين هو طلبي رقم ١٢٣٤؟"),
        ("Det er åbent, f.eks. nu.", "Det er for eksempel åbent nu.|Nu er det f.eks. åbent."),
    ],
)
def test_good_paraphrases_are_kept(text: str, paraphrases: str) -> None:
    drafts = [Draft(text, -1.0), *(Draft(other, -2.0) for other in paraphrases.split("|"))]
    assert keep_facts(drafts, text, list, repeats=False) == drafts


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Die Rechnung über 1.234,56 € ist da.", "Die Rechnung über 1.235,56 € ist da."),
        ("टिकट ५०० रुपये का है।", "टिकट ६०० रुपये का है।"),
        ("أين طلبي رقم ١٢٣٤؟", "أين طلبي رقم ١٢٣٥؟"),
        ("السعر ٥٠٫٥ دولار", "السعر ٥٠٥ دولار"),
        ("Los 50 dólares son para ti.", "Los 50 euros son para ti."),
    ],
)
def test_other_facts_are_not(text: str, other: str) -> None:
    assert keep_facts([Draft(other, -1.0)], text) == []


def test_an_added_sentence_is_dropped_in_any_script() -> None:
    drafts = [Draft("Где моя карта? Я её жду.", -1.0), Draft("Где она?", -2.0)]
    assert keep_facts(drafts, "Где моя карта?") == drafts[1:]


@pytest.mark.parametrize(
    "sentences",
    [
        [
            "Wo ist Dr. Mut bzw. seine Praxis? ",
            "Sie ist seit dem 19. Jahrhundert in der Seestr. 5.",
        ],
        ["¿Viene mañana la Sra. López? ", "El Sr. García ya está aquí."],
        ["Det koster ca. 50 kr. pr. måned. ", "Kan jeg f.eks. betale med kort?"],
        ["M. Dupont est arrivé hier. ", "Est-ce qu'il est là ?"],
        ["Он живёт на ул. Ленина, д. 5. ", "Как туда доехать?"],
        ["Πού είναι το δέμα μου; ", "Έρχεται σήμερα κιόλας."],
        ["أين طلبي الذي أرسلته؟ ", "لم يصل حتى الآن."],
        ["मेरा ऑर्डर कहाँ है? ", "वह अभी तक नहीं मिला। ", "कृपया जल्दी बताइए।"],
        ["ログインできません。", "どうすればいいですか？"],
    ],
)
def test_sentences_end_as_in_their_language(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize(
    ("source", "written", "spelled"),
    [
        ("Est-ce que l'eau est là ?", "est-ce qu'il n'est pas à l'eau ?", "Est-ce qu'il n'est pas"),
        ("Dove sono gli ospiti?", "dove sono i clienti?", "Dove sono i clienti?"),
        ("Wo ist der Platz?", "er sagte „gut“ und ging", "Er sagte „gut“ und ging"),
    ],
)
def test_words_are_spelled_as_in_their_language(english, source, written, spelled) -> None:
    tokens = english.tokenizer(written, add_special_tokens=False)["input_ids"]
    assert Spelling(source, english.tokenizer)(tokens).startswith(spelled)


def test_marks_of_other_scripts() -> None:
    assert place_spaces("أين طلبي ؟ نعم ، هنا") == "أين طلبي؟ نعم، هنا"
    assert place_spaces("वह नहीं मिला ।") == "वह नहीं मिला।"
    assert place_spaces("“ so ” ( “ it ” )") == "“so” (“it”)"
    assert plain_marks("أين طلبي؟؟؟") == "أين طلبي؟"
    assert marks_as_in("أين طلبي؟؟", "أين هو؟") == "أين هو؟؟"


def test_decomposed_texts_have_the_same_rows() -> None:
    tokenizer = wordpiece_tokenizer()
    tokenizer.backend_tokenizer.normalizer = None  # a cased one knows only whole letters
    tokenizer.add_tokens(["zurück"])
    rows = RowBuilder(tokenizer)
    assert rows.sources(["zuru\u0308ck"], 9) == rows.sources(["zurück"], 9)
    assert check_texts("zuru\u0308ck") == ["zurück"]


def test_every_encoder_reads_composed_texts() -> None:
    class Letters(nn.Linear):
        def encode(self, texts: list[str], **_: Any) -> np.ndarray:
            return np.eye(20, dtype=np.float32)[list(map(len, texts))]

    first, second = TextEncoder(Letters(1, 1))(["zuru\u0308ck", "zurück"])
    assert first @ second == 1


def test_composed_texts_are_what_a_model_may_not_know_or_cut(
    recwarn: pytest.WarningsRecorder,
) -> None:
    pieces = ["[UNK]", "z", "##u", "##r", "##ü", "##\u0308", "##ú"]
    letters = {piece: i for i, piece in enumerate(pieces)}
    cased = Tokenizer(models.WordPiece(letters, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=cased, unk_token="[UNK]")

    class Cut(nn.Linear):
        max_seq_length = 4

        def encode(self, texts: list[str], **_: Any) -> np.ndarray:
            return np.eye(len(texts), dtype=np.float32)

    (encoder := Cut(1, 1)).tokenizer = tokenizer
    assert TextEncoder(encoder).unread(["zu\u0301r"]) == []
    TextEncoder(encoder)(["zuru\u0308", "zu\u0301r"])
    assert not recwarn


def test_words_of_japanese_syllables_are_not_held(english) -> None:
    texts = ["Wi-Fiがつながらない", "ログインできません"]
    held = hold_words(english.tokenizer, texts)
    assert all(one.says_something() for one in held)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("أين طلبي\u200f؟", "أين طلبي؟"),
        ("\u202bשלום לך\u202c", "שלום לך"),
        ("Soft\xadware", "software"),
        ("\ufeffİSTANBUL", "istanbul"),
        ("cafe\u0301", "CAFÉ"),
    ],
)
def test_what_nobody_sees_makes_no_other_text(text: str, other: str) -> None:
    assert normalize_text(text) == normalize_text(other)
    assert fold("می\u200cروم") != fold("میروم")  # a join that shows
