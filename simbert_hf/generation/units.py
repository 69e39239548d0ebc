"""Units behind figures in English: "5km" is "5 kilometres", but neither "5 miles" nor "5"."""

from __future__ import annotations

import re

from simbert_hf.utils.text import read_sides, words_of

THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# As in ``facts.EXCLUSIVE``
MEASURES = """\
inch|inches foot|feet|ft yard|yards|yd|yds mile|miles meter|meters|metre|metres km|kms|kilometer|\
kilometers|kilometre|kilometres cm|cms|centimeter|centimeters|centimetre|centimetres mm|\
millimeter|millimeters|millimetre|millimetres
g|gram|grams kg|kgs|kilo|kilos|kilogram|kilograms mg|milligram|milligrams ton|tons|tonne|tonnes \
oz|ounce|ounces
l|liter|liters|litre|litres cl ml|milliliter|milliliters|millilitre|millilitres gallon|\
gallons|gal|gals
kb|kilobyte|kilobytes mb|megabyte|megabytes gb|gigabyte|gigabytes tb|terabyte|terabytes
w|watt|watts kw|kilowatt|kilowatts wh kwh mah
hz|hertz khz|kilohertz mhz|megahertz ghz|gigahertz
mph kph|kmh"""
UNITS = read_sides(MEASURES)
UNIT_OF = {word: side for sides in UNITS for side in sides for word in side}
MEASURE = re.compile(  # not in names: "MP3 G", but in "9x13 inch"; "5Gは" has a unit
    r"(?:(?<![a-z\d])(?<!\d\.)|(?<=\dx))(\d+(?:\.\d+)?)[ \xa0\u202f\u2010\u2011-]?"
    rf"({'|'.join(sorted(UNIT_OF, reverse=True))})(?![a-zà-ÿ\d_@])",
    re.IGNORECASE,
)
_HOURLY = r"(?:per|an) hour\b(?! (?:ago|before|after|later))"
LONG_UNITS = [  # and the "in" of "5 ft 10 in"
    (re.compile(pattern, re.IGNORECASE), unit)
    for pattern, unit in (
        (rf"\bmiles? {_HOURLY}", "mph"),
        (rf"(?:\b|(?<=\d))(?:km|kilomet(?:er|re)s?)(?: ?/ ?h\b| {_HOURLY})", "kph"),
        (r"(?<=\d)[ -]?(?:feet|foot|ft)\.?([ -](?:and )?\d+[ -]?)in\b", r" ft\1inches"),
    )
]


def changes_units(text: str, other: str) -> bool:
    """Tell whether an English text has a unit behind a figure where another has none, or another.

    Both have been through :func:`part_units`.

    Example:
        >>> [changes_units("5 km", other) for other in ("5 kilometers", "five km", "5 kg", "5")]
        [False, False, True, True]
        >>> changes_units("65 W, 100 Wh", "65 Wh, 100 W")
        True
    """
    # Here alone, as next to words it may be "inch" or "inches"
    text, other = (some.replace("\u2033", " inches") for some in (text, other))
    ours, theirs, words = _measures(text), _measures(other), words_of(other)
    figures = {figure for figure, _ in ours}
    return any(figure in figures for figure, _ in theirs - ours) or any(
        unit.isdisjoint(words) for _, unit in ours
    )


def part_units(text: str) -> str:
    """Part the units of an English text from their figures, and shorten those of several words.

    Example:
        >>> part_units("A 5-km run at 8 kilometers per hour"), part_units("He is 5 ft 10 in tall")
        ('A 5 km run at 8 kph', 'He is 5 ft 10 inches tall')
    """
    for pattern, unit in LONG_UNITS:
        text = pattern.sub(unit, text)
    return MEASURE.sub(r"\1 \2", THOUSANDS.sub("", text))


def _measures(text: str) -> set[tuple[str, frozenset[str]]]:
    """Find figures with their units."""
    return {(figure, UNIT_OF[unit]) for figure, unit in MEASURE.findall(text.lower())}
