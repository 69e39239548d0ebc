import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from simbert_hf.generation.search import SearchSettings
from simbert_hf.generation.spelling import Spelling, widen
from simbert_hf.generation.writing import write
from tests.tiny import unigram_tokenizer


def narrowing_tokenizer():
    """One that keeps case and writes wide marks as narrow ones, as XLM-R's does."""
    words = ["[UNK]", *"你好吗我是的,?!:()~% Ook!"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def respelled(source, written, tokenizer):
    """What a model that wrote the tokens of a text has written, of a source."""
    return Spelling(source, tokenizer)(tokenizer(written, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("source", "written", "spelled"),
    [
        ("how do i use Paypal?", "can i use paypal's app?", "can i use Paypal's app?"),
        ("Is it new in Paris?", "what is new in paris?", "What is new in Paris?"),
        ("Paris or Rome?", "rome or paris?", "Rome or Paris?"),
        ("PayPal or eBay?", "ebay or paypal?", "eBay or PayPal?"),
        ("Who am I?", "do you know who i am? do i?", "Do you know who I am? Do I?"),
        ("Hey, can i go?", "may i go?", "May i go?"),
        ("i go", "can i go?", "can i go?"),
        ("He left.", "i think, i'm sure he left.", "I think, I'm sure he left."),
        ("Ask us, the US.", "the us asks us.", "The US asks us."),
        ("I REALLY do, really.", "i really do", "I really do"),  # spelled in two ways
        ("Please ask Will now.", "will you ask will?", "Will you ask Will?"),
        ("Is IT late? Ask IT.", "it is it, ask it", "It is IT, ask IT"),
        ("Where are the customers' 5 cards?", "customers' cards, 5.50", "Customers' cards, 5.50"),
        ("at 10 or 1,000?", "10:30, 1,000 or 86,400 y'all", "10:30, 1,000 or 86,400 y'all"),
        ("Is C good, James' C?", "c++ or james' c, i.e. c", "C++ or James' C, i.e. C"),
        ("Où est la niña?", "la nina est ou?", "La niña est où?"),
        ("👋 Where is my card?", "do you know where?", "Do you know where?"),
        ("Re: What is it?\n- Who is it?", "tell me who or what", "Tell me who or what"),
        ('He said, "Go on"', "go on, he said", "Go on, he said"),
        ('I read "War and Peace" (by Tolstoy).', "war by tolstoy", "War by Tolstoy"),
        ("How Do I Reset My Password?", "can i reset my password?", "Can I Reset My Password?"),
        ("Is x@a.com or f(x)=1 it?", "x@a.com? f(x)=1.", "x@a.com? f(x)=1."),
        ("ATM?", "where is the atm?", "Where is the ATM?"),
        ("Is ASP.NET or www.Foo.com up?", "www.foo.com, asp.net", "www.Foo.com, ASP.NET"),
        ("reset it", "i am reseting it, balanceing it", "i am resetting it, balancing it"),
        ("is it reseting or crys", "it is reseting, crys", "it is reseting, crys"),
        ("Is plan A best?", "is a plan best? a?", "Is a plan best? A?"),
        ("T-Mobile's offer", "an offer of t-mobile", "An offer of T-Mobile"),
        ("In the U.S. or not?", "what's in the u.s.?", "What's in the U.S.?"),
        ("WHERE IS IT?", "where can i find it?", "WHERE CAN I FIND IT?"),
        ("the café of Zürich", "zurich's cafe, cafes", "Zürich's café, cafes"),
        ("see Node.js", "node.js, nodes", "Node.js, nodes"),
        ("it was -5 outside", "was it -5 - well-known", "was it -5-well-known"),
        ("C# or C++?", "is c# or c++ it? or c", "Is C# or C++ it? Or c"),
        ("use .net", "i use .net. or .net?", "i use .net. or .net?"),
        ("ask @bob of AT&T", "at&t's @bob", "AT&T's @bob"),
        ("see https://a.com/B?c=1,5.", "https://a.com/b?c=1,5, a", "https://a.com/B?c=1,5, a"),
        ("mail help@a.com.uk!", "mail. at help@a.com.uk or a", "mail. at help@a.com.uk or a"),
        ("a 🙂5 or 🙂", "5 or 6?", "5 or 6?"),  # unknown to the tokenizer
        ("我有iPhone13", "有我的iphone13", "有我的iPhone13"),
        ("「Zoom」的文", "文的zoom一?", "文的Zoom一?"),
        ("我的 iPhone 13 日", "iphone 13有，我的13日", "iPhone 13 有，我的 13 日"),
        ("我的 iPhone13日", "我的iphone13日", "我的iPhone13日"),  # not set off throughout
        ("3D or not?", '"is it 3d?" 3d or what?', '"Is it 3D?" 3D or what?'),
        ("Go 🙂!", "now go!", "Now go!"),
        ("a top-up - or a Wi-Fi", "the wi-fi - a top-up", "the Wi-Fi - a top-up"),
        ("WHO HAS AN ATM?", "is this a atm?", "IS THIS AN ATM?"),
        ("Open at 9 a.m.?", "does it open at 9 a.m.", "Does it open at 9 a.m.?"),
        ("Ask Nguyen Kowalski", "did nguyen kowalski ask?", "Did Nguyen Kowalski ask?"),  # no title
        ("Call Dr. Anna Brown in Rome", "call anna brown in rome", "Call Anna Brown in Rome"),
        ("Police Arrest Man Near River", "police nab man near river", "Police Nab Man Near River"),
        (
            "LEGO Star Wars Kit (75 Pieces)",
            "the kit of lego star wars",
            "The Kit of LEGO Star Wars",
        ),
        ("Students of Oxford Win Prize for Art", "they get a prize", "They Get a Prize"),
        ("Can Apple TV Plus play Hulu Live?", "will apple tv do it?", "Will Apple TV do it?"),
        ("Wo Ist Meine Neue Karte", "wo liegt meine karte", "Wo liegt Meine Karte"),
        ('I read "The Crown" at home', "i read it in the bath", "I read it in the bath"),
        ("On 21st St", "at 21st st", "At 21st St"),
        ('See "The Old Man", the film', 'the film "the old man"', 'The film "The Old Man"'),
        ('Type "yes" or "YES".', 'enter "yes" or "yes".', 'Enter "yes" or "yes".'),
        ("At 180°C with 16GB", "180 ° c with 16 gb", "180°C with 16 GB"),
        ("an ATM of a EU bank", "a atm, an eu one, an cat", "an ATM, a EU one, an cat"),
        ("Is an hour a unit?", "a hour is an unit", "An hour is a unit"),
        ("It is what the mba costs.", "an mba has an deadline.", "An mba has a deadline."),
        (
            "is it the end?",
            "a end of a era, a one; a is a us",
            "an end of an era, a one; a is a us",
        ),
        ("il est ici", "il a aime a paris", "il a aime a paris"),
        ("a one, an one, an X", "an one, a one, a-x", "an one, a one, a-X"),  # both are in use
    ],
)
def test_words_are_spelled_as_in_the_source(english, source, written, spelled):
    assert respelled(source, written, english.tokenizer) == spelled


@pytest.mark.parametrize("source", ["", "...", "，", "🙂", "怎么重置密码？"])
def test_a_source_without_words_spells_nothing(english, source):
    assert respelled(source, "i like paypal, ok?", english.tokenizer) == "i like paypal, ok?"


@pytest.mark.parametrize(
    ("source", "written", "spelled"),
    [
        ("你好，我是！", "我是,你好!?", "我是，你好！？"),
        ("你好吗", "吗?我:Ok,ok", "吗？我：Ok,ok"),  # none of its own: as Chinese is written
        ("你好,我是", "我是,你好?", "我是,你好?"),
        ("Ok, ok?", "ok?!", "ok?!"),
        ("你好（Ok）吗？", "我(Ok)!", "我（Ok）！"),
        ("你是Ok？", "你是Ok?", "你是Ok？"),
        ("我的Ok\uff5e\uff05", "Ok~我% Ok", "Ok\uff5e我\uff05 Ok"),
        ("我 Ok%, \uff05", "我Ok%", "我 Ok%"),
        ("我Ok", "我 Ok", "我Ok"),
    ],
)
def test_marks_beside_chinese_are_as_wide_as_the_sources(source, written, spelled):
    assert respelled(source, written, narrowing_tokenizer()) == spelled


def test_a_tokenizer_that_forgets_nothing_needs_no_spelling():
    text, tokenizer = "who? i am in paris", unigram_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    assert respelled("So i am? A THING, in paris.", text, tokenizer) == text


def test_only_articles_change_with_a_tokenizer_that_forgets_nothing():
    tokenizer = unigram_tokenizer("A", "-")
    tokenizer.backend_tokenizer.decoder = decoders.Metaspace()
    assert respelled("IS IT - OR NOT?", "A end-on", tokenizer) == "An end-on"


def test_spelling_changes_no_token(english):
    source = "Does the café in Zürich take PayPal? I'd ask O'Neil, or AT&T."
    written = "i'd ask paypal, at & t or o ' neil at the cafe in zurich."
    spelled = respelled(source, written, english.tokenizer)
    assert spelled == "I'd ask PayPal, AT&T or O'Neil at the café in Zürich."
    assert english.rows.sources([written], 64) == english.rows.sources([spelled], 64)


@pytest.mark.parametrize(
    ("source", "written", "spelled"),
    [
        ("Tom's dog is here.", "that dog of tom is here. it ' s tom ' s.",
         "That dog of Tom is here. It's Tom's."),
        ("Paris is nice.", "nice is paris.", "Nice is Paris."),
        ("Cards are lost.", "lost are cards.", "Lost are cards."),
        ("I am here since '98.", "since ' 98 i am here.", "Since '98 I am here."),
    ],
)  # fmt: skip
def test_names_are_known_where_a_sentence_begins(english, source, written, spelled):
    assert respelled(source, written, english.tokenizer) == spelled


def test_a_copy_is_none_for_its_spelling(english):
    texts = ["¿Dónde está la niña?", "My friends' cards are lost.", "Ça va?"]
    plain = english.tokenizer.backend_tokenizer.normalizer.normalize_str
    for text, drafts in zip(texts, write(english, texts, SearchSettings(30)), strict=True):
        found = [draft.text for draft in drafts]
        assert found
        copy = respelled(text, text, english.tokenizer)
        assert copy.lower() not in [one.lower() for one in found]
        assert plain(text) not in map(plain, found)


def test_written_sentences_are_spelled_as_their_source(english):
    found = english.gen_synonyms("How do I reset my PayPal password?", n=20)
    assert found
    assert all(text[0].isupper() for text in found)
    named = [text for text in found if "paypal" in text.lower()]
    assert len(named) > 5
    assert all("PayPal" in text for text in named)


@pytest.mark.parametrize("text", ["a" * 400_000, "a b " * 10_000, "怎么登录" * 50_000])
def test_long_texts_take_no_quadratic_time(english, text: str) -> None:
    """As of a file pasted in; each took minutes or more."""
    Spelling(text, english.tokenizer)


def test_narrow_marks_of_any_number_become_wide_beside_chinese():
    """In time that grows with their number alone: by its square, this would take a long while."""
    assert widen("好吗?!(a)好 ok, ??好") == "好吗？！（a）好 ok, ？？好"
    many = "(" * 300_000
    assert widen(f"好 {many} a") == f"好 {many} a"
