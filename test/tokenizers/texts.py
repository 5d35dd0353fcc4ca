"""Our own texts: twenty scripts, code, emoji, odd spaces, and strings made by chance of all of
these.
"""
import random
import unicodedata

SCRIPTS = {
    "Latin": ("The quick brown fox didn't jump: WE'LL see what they'Ve got, o'clock O'Neill's. "
              "Ærøskøbing, naïve façade ǅ ǆ ſ."),
    "Vietnamese": "Tiếng Việt có dấu: Cửa hàng mở lúc 7h30, giá 1.234.567 đồng; đừng quên nhé!",
    "Turkish": "İstanbul'da IŞIK ve ışık, Ankara'nın 3'ü, çğöşü.",
    "Greek": "Ελληνικά γράμματα: Ὀδυσσεύς, ΣΊΣΥΦΟΣ, ᾳ ᾼ ὣς ἔφατ' 42 φορές.",
    "Cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю — №5, ЩИ и Борщ'а.",
    "Armenian": "Հայաստանի Հանրապետություն, բարև ձեզ։ 1915 թ. ՄԵԾ և փոքր և",
    "Georgian": "საქართველო თბილისი, ᲡᲐᲥᲐᲠᲗᲕᲔᲚᲝ Ⴀⴀ 20%",
    "Hebrew": "שָׁלוֹם עוֹלָם, מה שלומך? ג'ירפה ו-10 צ\"ל",
    "Arabic": "مرحبا بالعالم، كيف الحال؟ ١٢٣٤٥ عَرَبِيّ ـــ النص۔",
    "Persian": "می‌خواهم ۱۲۳۴ کتاب بخوانم؛ خانه‌ها",
    "Devanagari": "नमस्ते दुनिया, हिन्दी में १२३४५ शब्द। क्षत्रिय ॐ",
    "Bengali": "বাংলা ভাষা, ১২৩৪ টাকা। ক্ষুধা",
    "Tamil": "தமிழ் மொழி, வணக்கம் ௧௨௩ ௰ ௱",
    "Telugu": "తెలుగు లిపి, నమస్కారం ౧౨౩",
    "Thai": "ภาษาไทยไม่มีช่องว่าง ๑๒๓๔ น้ำ เก็บ ฿500",
    "Lao": "ພາສາລາວ ສະບາຍດີ ໑໒໓",
    "Khmer": "កាន់តែពិសេសអាចខលចេញ ១២៣៤",
    "Burmese": "မြန်မာဘာသာ ၁၂၃၄ ကြောင်",
    "Tibetan": "བོད་སྐད་ཡིག ༡༢༣ །",
    "Amharic": "አማርኛ ሰላም ፩፪፫ ።",
    "Chinese": "我想在apple工作1314151天～ 《红楼梦》第三回，“你好！”她说……〇〡〢 㐀 𠀀𪜀 ⺀",
    "Japanese": "東京タワーは333メートルです。ｶﾀｶﾅ とヶ月々 ㍻31年 ー",
    "Korean": "안녕하세요 세계! 2024년 3월, ㄱㄴㄷ 한국어",
    "Bopomofo": "ㄅㄆㄇㄈ ㆠ 注音ㄓㄨˋ",
    "Cherokee": "ᏣᎳᎩ ꮳꮃꭹ ᎦᏬᏂᎯᏍᏗ",
    "Mongolian": "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ᠌ ᠑᠒\u180e᠓",
    "mathematics": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, 𝔸𝕓𝑐 𝟙𝟚𝟛 ½ ⅷ x² ③ ㊷ ⒈ €£¥ ℃ Ⓐⓑ 🄰",
}
CODE = [("def f(x):\n    return {'a': x**2, \"b\": [i for i in range(10)]}  # they're 1234567\n\n\n"
         "class A:\n\tpass\n"),
        ("int main() {\r\n\tstd::vector<int> v{1, 22, 333, 4444};\r\n"
         "\treturn v.size() /* */ ; //end\r\n}\r\n"),
        "<div class=\"x\">&nbsp;</div>\n<!-- -->\n<script>a=>{return !a?.b??c}</script>",
        "https://example.org/a/b?c=d&e=%20#f/\n//path/to\\file\n\n/\n",
        "SELECT * FROM `t` WHERE a<>'b''s' AND n>=1e-10;",
        "camelCaseHTTPServer snake_case_name SCREAMING_CASE kebab-case XMLHttpRequest2 iOS",
        "{\"k\": -1.5e+10, \"l\": [null]}",
        "<sentinel:12><sentinel:>IMGIMGABZIMGIMGZIMGIMGABCDEZ IMGIMGIZ", ]
EMOJI = [
    "🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ 🦙🦙 👨‍👩‍👧‍👦👍🏽🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣",
    "❤️‍🔥!!! (╯°□°）╯︵ ┻━┻ ✨…",
]
SPACES = [
    "", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\n \n  \n", "a  b",
    "a   \n\n  b", " \t\t x", "\u00a0", "a\u00a0b", "\u2003\u2003x", "\u3000\u3000\n\u3000y",
    "\u2028\u2029", "\u0085a", "a\u200bb", "\ufeffx", "\u180ez", "\x00\x01 \x1f\x7f",
    "x \r y\r\r z", " " * 1023 + "x", "\t" * 700, " " * 300 + "\n" + " " * 300, "\u1680\u205fq"
]
NUMBERS = [str(10**n // 9) for n in range(2, 25)] + [
    "1,234,567.89", "12345abc", "123456_7", "x1y22z333", "1234567é", "１２３４５６７", "١٢٣٤", "12½34²",
    "Ⅷ123", "1234Ⓐ", "1e100", "007 3.14159 1-800-555-0199", "12345\u0301", "½1234", "123456‿"
]
WORDS = [
    "'s", "'T", "'re", "'VE", "'m", "'lL", "'d", "'ſ", "''s", "'sx", "can't", "CAN'T", "y'all've",
    "'", "’s", "Iñtërnâ", "Ab", "ABc", "ABC", "aBC", "中A", "A中", "ÀÉ", "é", "e\u0301", "\u0301",
    "ǅx", "ʰ", "xʰY", "/", "//\n/", " /", "\"'", "---", "...", "$1", "`a`", "^~|", "…", "।", "(a)",
    "!x", "@Foo", "#bar", "_x_", "\\n", "·", "ªº", "µ", "ß", "ẞ", "ﬁ", "א", "ا", "ก", "가", "ㄱ", "あ",
    "々", "〇", "ⅷ", "²", "①", "€", "🙂", "\u200d", "\ufe0f", "\x00", "\u00ad", "\ue000", "\U000e0041"
]
WHITE = [
    " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "    ", "\u2009", "\u0085", "\u2028", "\n\n"
]


def fixed():
    return [*SCRIPTS.values(), *CODE, *EMOJI, *SPACES, *NUMBERS, *WORDS, " ".join(SCRIPTS.values()),
            "\n".join(CODE + NUMBERS), "".join(WORDS), " ".join(WORDS), " \n".join(EMOJI)]


def every_character():
    """Each assigned character with letters, digits, spaces and marks beside it."""
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    return [
        "".join(f"{c}a 1{c}{c}. A{c}b\n" for c in map(chr, codes[i : i + 400]))
        for i in range(0, len(codes), 400)
    ]


def by_chance(count, seed):
    rng = random.Random(seed)
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    letters = [sorted({c for c in text if not c.isspace()}) for text in SCRIPTS.values()]
    source = "".join(fixed())

    def piece():
        kind = rng.randrange(12)
        if kind < 3:
            return rng.choice(WORDS)
        if kind < 5:
            return rng.choice(WHITE)
        if kind == 5:
            return "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 9)))
        if kind < 8:
            return "".join(rng.choices(rng.choice(letters), k=rng.randrange(1, 7)))
        if kind == 8:
            return chr(rng.choice(codes))
        if kind == 9:
            return "".join(chr(rng.randrange(0x20, 0x7f)) for _ in range(rng.randrange(1, 6)))
        at = rng.randrange(len(source))
        return source[at:at + rng.randrange(1, 20)]

    return ["".join(piece() for _ in range(rng.randrange(1, 24))) for _ in range(count)]
