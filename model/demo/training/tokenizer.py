"""A byte-pair vocabulary for SPM's greedy merge of a text: highest score first, leftmost on ties.

A space is U+2581 and belongs to the word after it; pieces never hold a space inside nor mix letters
and signs, so that words tokenise one by one. What is no piece becomes its bytes (<0x0A> for the
newline), as in SentencePiece.
"""
import collections
import re

SPACE = "\u2581"
UNKNOWN, BOS, EOS, FIRST_BYTE = 0, 1, 2, 3
WORD = re.compile(f"{SPACE}?[A-Za-z]+|{SPACE}?[^A-Za-z{SPACE}]|{SPACE}")
NORMAL, UNKNOWN_TYPE, CONTROL, BYTE = 1, 2, 3, 6  # tokenizer.ggml.token_type


def words_of(text):
    return WORD.findall(SPACE + text.replace(" ", SPACE))


def merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    def __init__(self, texts, size):
        """Learns `size` pieces: 3 specials, 256 bytes, the most frequent merges in order, the
        characters.
        """
        counts = collections.Counter(w for t in texts for w in words_of(t) if w != "\n")
        split = {w: list(w) for w in counts}
        characters = sorted({c for w in counts
                             for c in w} | set(map(chr, range(33, 127))) | {SPACE})
        merges = []
        seen = set(characters)
        while FIRST_BYTE + 256 + len(characters) + len(merges) < size:
            pairs = collections.Counter()
            for w, symbols in split.items():
                for pair in zip(symbols, symbols[1:]):
                    pairs[pair] += counts[w]
            best = max(pairs, key=lambda p: (pairs[p], p))
            split = {
                w: merge(s, best) if best[0] in s and best[1] in s else s for w, s in split.items()
            }
            piece = best[0] + best[1]
            if piece not in seen:
                seen.add(piece)
                merges.append(piece)
        # A merge's score is minus its rank. Characters are never the result of a merge: they rank
        # last.
        self.pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>"
                                                  for b in range(256)] + merges + characters
        self.scores = [0.0] * (FIRST_BYTE + 256) + [
            -float(i) for i in range(len(merges) + len(characters))
        ]
        self.types = (
            [UNKNOWN_TYPE, CONTROL, CONTROL]
            + [BYTE] * 256
            + [NORMAL] * (len(merges) + len(characters))
        )
        self.ids = {p: i for i, p in enumerate(self.pieces) if i >= FIRST_BYTE + 256}
        self.cache = {}

    def encode_word(self, word):
        if word not in self.cache:
            symbols = list(word)
            while True:
                best = max(
                    (
                        (self.scores[self.ids[a + b]], -i)
                        for i, (a, b) in enumerate(zip(symbols, symbols[1:]))
                        if a + b in self.ids
                    ),
                    default=None,
                )
                if best is None:
                    break
                i = -best[1]
                symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
            self.cache[word] = [
                t
                for s in symbols
                for t in ([self.ids[s]] if s in self.ids else [FIRST_BYTE + b for b in s.encode()])
            ]
        return self.cache[word]

    def encode(self, text):
        return [t for w in words_of(text) for t in self.encode_word(w)]
