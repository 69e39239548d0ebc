"""What a Chinese paraphrase must keep, and how Chinese texts are cut and spelled."""

from __future__ import annotations

import pytest

from simbert_hf.generation.chinese import changes
from simbert_hf.generation.facts import is_balanced
from simbert_hf.generation.sentences import split_sentences, worth_writing
from simbert_hf.generation.slips import slips_of
from simbert_hf.generation.writing import Draft, keep_facts


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("我没有收到验证码", "我收到验证码"),
        ("我收到验证码", "我没有收到验证码"),
        ("上午能退货吗", "下午能退货吗"),
        ("三天之内可以退货吗", "三天之外可以退货吗"),
        ("三天可以退货吗", "两天可以退货吗"),
        ("从8点到20点", "从20点到8点30分"),
        ("1月3日放假吗", "3月1日放假吗"),
        ("@小明 明天开会", "@小明 今天开会"),
        ("我的密码", "你的密码"),
        ("我不同意退款", "我同意退款"),
        ("我不知道密码", "我知道密码"),
        ("这是不对的", "这是对的"),
        ("今年的利润比去年高", "去年的利润比今年高"),
        ("苹果比香蕉贵", "苹果不如香蕉贵"),
        ("把人民币换成美元要手续费吗", "把美元换成人民币要手续费吗"),
        ("怎么把银行卡的钱转到支付宝", "怎么把支付宝的钱转到银行卡"),
        ("中国队战胜巴西队", "巴西队战胜中国队"),
        ("小明比小红高三厘米", "小明比小红高三公里"),
        ("饭前半小时吃一片", "饭后半小时吃一片"),
        ("订单取消后押金几天退还", "订单取消前押金几天退还"),
        ("蒸鱼需要几分钟", "蒸鱼需要几小时"),
        ("周三有课吗", "星期四有课吗"),
        ("我并不讨厌他", "我并不喜欢他"),
        ("东西在柜里，记得去拿", "东西在柜里，忘了去拿"),
        ("央行下调利率", "央行提高利率"),
        ("怎么打开通知", "怎么关闭通知"),
        ("订单取消后能退押金吗", "订单取消之前能退押金吗"),
        ("我不记得密码", "我记得密码"),
        ("别忘了带伞", "他忘了带伞"),
        ("油价会涨吗", "油价会降吗"),
        ("以前怎么办的", "以后怎么办的"),
        ("没有不喜欢她的人", "没有喜欢她的人"),
        ("我爸不抽烟也不喝酒", "我爸抽烟也不喝酒"),
    ],
)
def test_a_change_of_what_is_said_is_found(text: str, other: str) -> None:
    assert changes(text, other)
    assert not changes(text, text)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("能不能退货", "可以退货吗"),
        ("能退货吗", "上午能退货吗"),
        ("有没有优惠", "有优惠吗"),
        ("这个不错", "这个很好"),
        ("我想今天退货", "今天想退货"),
        ("他两天没来", "他有两天未到"),
        ("A和B有什么差别", "A和B有什么区别"),
        ("有很多人", "有不少人"),
        ("审核不过怎么办", "审核没过怎么办"),
        ("密码不管用", "密码没用"),
        ("我有别的问题", "我有其他问题"),
        ("我想退货", "你好，我想退货"),
        ("值钱不？", "值钱吗"),
        ("十分好看", "非常好看"),
        ("他的卡是不能用的", "他的卡不能用"),
        ("她今天比昨天好很多", "跟昨天比，她今天好很多"),
        ("京都不如大阪大", "大阪比京都大"),
        ("人们用什么比喻教师", "教师被比喻成什么"),
        ("微信比支付宝好用吗", "微信要比支付宝好用吗"),
        ("怎么把钱转到微信", "钱怎么转到微信"),
        ("跑了三公里", "跑了三千米"),
        ("下单后能改地址吗", "下单以后能改地址吗"),
        ("下了班到前台取", "下班后到前台取"),
        ("退货了怎么联系商家", "退货了怎么联系商家的售后"),
        ("记得带伞", "别忘了带伞"),
        ("别忘了我", "别把我忘记"),
        ("我忘了密码", "密码我不记得了"),
        ("我不会忘记你", "我忘不了你"),
        ("你记不记得他", "你记得他吗"),
        ("我记不住单词", "单词我背不下来"),
        ("哪里有卖充电宝的", "哪里能买到充电宝"),
        ("买这个多少钱", "这个的售价是多少"),
        ("花呗关了怎么开通", "花呗关闭后怎么开通"),
        ("应用关闭后打不开", "应用关闭后无法打开"),
        ("价格涨了又降", "价格上涨后又下降"),
        ("我们哥俩", "我们兄弟俩"),
        ("兄弟俩长得像", "哥哥和弟弟长得像"),
        ("周末上班吗", "星期六星期天上班吗"),
        ("没有身份证不能办卡", "没身份证办不了卡"),
    ],
)
def test_other_words_are_no_change(text: str, other: str) -> None:
    assert not changes(text, other)


@pytest.mark.parametrize(
    ("text", "drafts", "kept"),
    [
        ("早上8：30开门吗？", ["早上8:30开门？", "早上8，30开门？"], ["早上8:30开门？"]),
        ("ＶＩＰ怎么退费？", ["怎么退费？", "VIP如何退费？"], ["VIP如何退费？"]),
        ("面积是120㎡吗？", ["面积是120万？", "面积120m2？"], ["面积120m2？"]),
        ("【急】怎么退款？", ["【急怎么退款？", "【急】如何退款？"], ["【急】如何退款？"]),
        ("怎么退款？", ["怎么退款吗？", "如何退款？"], ["如何退款？"]),
        ("怎么退款？", ["怎么退款吗？"], ["怎么退款吗？"]),
        ("订单12345，3天了还没到", ["订单12345已经3天没到了"], ["订单12345已经3天没到了"]),
        ("10 m² of it", ["10 square meters"], ["10 square meters"]),
        (
            "{用户名}，何时发货？",
            ["{用户，何时发货？}", "何时发货，{用户名}？"],
            ["何时发货，{用户名}？"],
        ),
    ],
)
def test_wide_characters_and_brackets_are_compared_by_what_they_say(
    text: str, drafts: list[str], kept: list[str]
) -> None:
    found = keep_facts([Draft(draft, -1.0) for draft in drafts], text)
    assert [draft.text for draft in found] == kept


def test_slips_are_particles_twice_and_questions_asked_twice() -> None:
    assert slips_of("可以退货吗吗") == {"吗吗"}
    for text in ("能不能退货吗？", "为什么扣款吗", "这是什么颜色吗"):
        assert slips_of(text) == {"怎么吗"}
    assert not slips_of("能帮我看看怎么退款吗") | slips_of("以学习为目的的旅行")
    assert not slips_of("你知道怎么退款吗？") | slips_of("怎么样？好用吗？") | slips_of("打不了了")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("怎么退款？3天了还没到账。", ["怎么退款？", "3天了还没到账。"]),
        ("我要退货。iPhone坏了不能用。", ["我要退货。", "iPhone坏了不能用。"]),
        ("1.怎么退款？2.运费谁出？", ["1.", "怎么退款？", "2.", "运费谁出？"]),
        ("1、怎么退款\n2、怎么换货", ["1、", "怎么退款\n", "2、", "怎么换货"]),
        ("（1）怎么退款？（2）怎么换货？", ["（1）", "怎么退款？", "（2）", "怎么换货？"]),
        ("①怎么退款\n②怎么换货", ["①", "怎么退款\n", "②", "怎么换货"]),
        ("一、怎么退款\n二、怎么换货", ["一、", "怎么退款\n", "二、", "怎么换货"]),
        ("2、3天可以吗？", ["2、3天可以吗？"]),
        ("三、四天能到吗？", ["三、四天能到吗？"]),
        ("收到“成功！3日内到账”的短信", ["收到“成功！3日内到账”的短信"]),
        ("（他说好。3天后到）真的吗？", ["（他说好。3天后到）真的吗？"]),
        ("价格是1.5元吗？", ["价格是1.5元吗？"]),
        ("你好！（我是小明）怎么退款？", ["你好！（我是小明）怎么退款？"]),
    ],
)  # fmt: skip
def test_sentences_and_items_are_cut(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences
    assert "".join(sentences) == text


def test_a_sentence_that_begins_with_latin_letters_is_long_enough() -> None:
    assert worth_writing(["我要退货。", "iPhone坏了不能用。"]) == [
        "我要退货。",
        "iPhone坏了不能用。",
    ]


def test_half_width_brackets_are_no_other_ones() -> None:
    assert is_balanced("【急】『花呗』{name}")
    assert not is_balanced("【急")
