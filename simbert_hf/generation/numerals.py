"""Chinese numbers and measures: 三十分钟 is 30分钟 and 半小时, and 两万块 is 20000元."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

DIGITS = dict(zip("零〇一二三四五六七八九两", (0, *range(10), 2), strict=True))
PAIR = {"俩": 2, "仨": 3}
TENS = {"十": 10, "百": 100, "千": 1000}
LARGE = {"万": 10**4, "亿": 10**8}
# Units, in another one that they are multiples of
UNITS = {
    "元": ("元", 1), "块钱": ("元", 1), "块": ("元", 1), "折": ("折", 1),
    "%": ("%", 1), "成": ("%", 10), "刻钟": ("分", 15), "刻": ("分", 15),
    "分钟": ("分", 1), "分": ("分", 1), "秒钟": ("秒", 1), "秒": ("秒", 1),
    "个小时": ("分", 60), "小时": ("分", 60), "个钟头": ("分", 60), "钟头": ("分", 60),
    "天": ("天", 1), "个星期": ("天", 7), "星期": ("天", 7), "个礼拜": ("天", 7), "周": ("天", 7),
    "个月": ("个月", 1), "年": ("个月", 12), "月份": ("月", 1), "月": ("月", 1),
    "号": ("日", 1), "日": ("日", 1), **dict.fromkeys(("日内", "日之内", "日以内"), ("天", 1)),
    "点钟": ("点", 1), "点": ("点", 1), "时": ("点", 1),
    "周岁": ("岁", 1), "岁": ("岁", 1), "级": ("级", 1), "倍": ("倍", 1),
    "度": ("度", 1), "°C": ("度", 1), "°": ("度", 1),
    "厘米": ("毫米", 10), "公分": ("毫米", 10), "毫米": ("毫米", 1), "米": ("毫米", 1000),
    "公里": ("毫米", 10**6), "千米": ("毫米", 10**6), "毫升": ("毫升", 1),
    "公斤": ("克", 1000), "千克": ("克", 1000), "斤": ("克", 500), "克": ("克", 1),
    **dict.fromkeys("次回遍趟场", ("次", 1)),
    **dict.fromkeys("个人位名张件份瓶杯盒台辆本", ("个", 1)),
}  # fmt: skip
_FIRST = f"[{''.join(DIGITS)}十]"
# 周三 is a day, but not in 每周三次
_NO_DAY = "(?:(?<!周)(?<!星期)(?<!礼拜)|(?=两|.(?:次(?!日)|[遍趟]|天(?!气))))"
_NO_UNIT = {"成": "(?![本功立])", "日内": "(?![部容])"}
_USUAL = "|".join(unit + _NO_UNIT.get(unit, "") for unit in sorted(UNITS, key=len, reverse=True))
# 俩小时, but not 我们俩点菜
_OF_PAIRS = "个?(?:小时|钟头|星期|礼拜)|月(?![底初末中薪])|天(?![天生])"
_UNIT = f"(?<![俩仨])(?:{_USUAL})|(?<=[俩仨])(?:{_OF_PAIRS})"
QUANTITY = re.compile(
    r"(?!十分(?!钟)|八成(?=[是会不没要得在又还])|(?<=[前这过])两天)"
    rf"(?:(?P<part>[{''.join(DIGITS)}十百千万]分之|[¥第])?"
    rf"(?:(?P<figure>(?<![\d.])\d{{1,99}}(?:\.\d{{1,99}})?)(?P<large>[十百千万亿]{{0,4}})"
    rf"|(?P<words>[俩仨]|{_NO_DAY}(?<![十百千万亿]){_FIRST}[{''.join(DIGITS)}十百千万亿]{{0,99}})"
    rf"|(?<!个)半(?=个?(?:小时|钟头)|个月|[年斤]))(?P<and_half>个半(?=小时|钟头))?"
    rf"(?P<unit>{_UNIT})?(?P<half>(?<=[点年天块斤岁倍])半(?![天夜载个小价年]))?)"
)


class Quantity(NamedTuple):
    """A number and its unit: equal for all ways to write it.

    Attributes:
        number: The value; a text that is no single number, such as 三四, stands for itself.
        unit: What it counts, "" if nothing is known; with 第 for an ordinal.
    """

    number: Fraction | str
    unit: str


def quantities(text: str) -> dict[str, Quantity]:
    """Find numbers with their units, by how they are written.

    Example:
        >>> for spelled, (number, unit) in quantities("半小时跑了三公里").items():
        ...     print(spelled, number, unit)
        半小时 30 分
        三公里 3000000 毫米
    """
    return {found[0]: quantity_of(found) for found in QUANTITY.finditer(text)}


def quantity_of(found: re.Match[str]) -> Quantity:
    """Read what ``QUANTITY`` has found."""
    part, unit = found["part"], found["unit"] or ""
    value: Fraction | int | None = Fraction(1, 2)
    if found["figure"]:
        value = Fraction(found["figure"]) * (value_of(f"一{found['large']}") or 1)
    elif found["words"]:
        value = PAIR.get(found["words"]) or value_of(found["words"])
    if found["words"] in ("两", *PAIR) and unit in ("月", ""):
        unit = f"个{unit}"  # 两月 is no date
    if unit == "成" and len(found["figure"] or found["words"]) > 1:
        unit = ""  # 三五成群
    kind, times = UNITS.get(unit, ("", 1))
    if part:
        kind, times = "元" if part == "¥" else part.replace("百分之", "%") + unit, 1
    if value is not None and (found["and_half"] or found["half"]):
        value += Fraction(1, 2)
    return Quantity(found["words"] if value is None else Fraction(value * times), kind)


def value_of(numeral: str) -> int | None:
    """Read a Chinese numeral; None if it is no single number.

    Example:
        >>> [value_of(numeral) for numeral in ("十五", "三百五", "一千零二", "一万二", "二〇二四")]
        [15, 350, 1002, 12000, 2024]
        >>> value_of("三四"), value_of("两三百")
        (None, None)
    """
    if len(numeral) > 2 and {*numeral} <= DIGITS.keys():
        return int("".join(str(DIGITS[char]) for char in numeral))
    total = part = 0
    digit: int | None = None
    unit = 1  # what a last digit counts the tenths of
    for char in numeral:
        if char in DIGITS:
            if digit:
                return None
            digit = DIGITS[char]
            unit = unit if digit else 10
        elif char in TENS:
            unit = TENS[char]
            part += unit * (1 if digit is None else digit)
            digit = None
        else:
            unit = LARGE[char]
            part += digit or 0
            total = (total + part) * unit if total < unit else total + part * unit
            part, digit = 0, None
    return total + part + (digit or 0) * max(1, unit // 10)


def spelled_as(text: str, other: str) -> str:
    """Write the quantities of another text as a text writes the same ones.

    A single character such as 三 that counts nothing known stays.

    Example:
        >>> spelled_as("周三下午三点，20块钱", "星期三下午3点，二十元"), spelled_as("三天", "2天")
        ('星期三下午三点，20块钱', '2天')
    """
    known = {one: spelled for spelled, one in quantities(text).items() if one.unit or spelled[1:]}
    if not known:
        return other
    there = quantities(other)

    def respelled(found: re.Match[str]) -> str:
        own = known.get(quantity_of(found), found[0])
        return found[0] if own in there else own

    return QUANTITY.sub(respelled, other)
