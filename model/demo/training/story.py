"""One story being written: variables and paragraphs, how a template becomes text, how stories open
and close.

Within a template, [a|b|c] is one of a, b, c (brackets nest) and {name} a variable of the story, so
that who, what, where and he or she stay the same from the first sentence to the last.
"""
import re

import cast

INNERMOST = re.compile(r"\[([^\[\]]*)\]")


class Story:
    """One story being written: its random source, its variables, its paragraphs."""

    def __init__(self, rng):
        self.rng = rng
        self.vars = {}
        self.paragraphs = []
        self.used_names = set()

    def pick(self, options):
        return self.rng.choice(options)

    def say(self, *sentences):
        """Adds one paragraph."""
        text = " ".join(self.expand(s) for s in sentences if s)
        self.paragraphs.append(" ".join(text.split()))

    def expand(self, template):
        while True:
            expanded = INNERMOST.sub(lambda m: self.pick(m.group(1).split("|")), template)
            if expanded == template:
                break
            template = expanded
        text = template.format(**self.vars)
        text = re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)
        return (
            re.sub(r"(^|[.!?] \"?|\")([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)
            if text
            else text
        )

    def cast_member(self, prefix, kind=None, good_at=None, not_good_at=(), not_kinds=()):
        """Makes a character p and its variables: {p} name, {p_the} "name the fox" (a child: only
        the name), {p_kind}, {p_he}, {p_him}, {p_his}, {p_home}, {p_food}, {p_skill}. Animals of a
        story differ in kind.
        """
        if kind is None:
            taken = (self.vars.get("h_kind"), self.vars.get("f_kind"), *not_kinds)
            animals = [
                a
                for a, (_, _, skill) in cast.ANIMALS.items()
                if a not in taken
                and skill not in not_good_at
                and (good_at is None or skill in good_at)
            ]
            child = good_at is None and self.rng.random() < 0.45
            kind = self.pick(["girl", "boy"]) if child else self.pick(animals)
        female = kind == "girl" or (kind != "boy" and self.rng.random() < 0.5)
        if kind in cast.ANIMALS:
            names = cast.FEMALE_PETS if female else cast.MALE_PETS
            home, food, skill = cast.ANIMALS[kind]
        else:
            names = cast.GIRLS if female else cast.BOYS
            home, food, skill = self.pick(cast.CHILD_HOMES), self.pick(cast.CHILD_FOODS), ""
        name = None
        while name is None or name in self.used_names:
            invented = [cast.NAME_STARTS, cast.NAME_MIDDLES, cast.NAME_ENDS]
            name = "".join(map(self.pick,
                               invented)) if self.rng.random() < 0.12 else self.pick(names)
        self.used_names.add(name)
        he, him, his = ("she", "her", "her") if female else ("he", "him", "his")
        the = name if kind in ("girl", "boy") else f"{name} the {kind}"
        self.vars.update(
            {
                prefix: name,
                prefix + "_the": the,
                prefix + "_kind": kind,
                prefix + "_he": he,
                prefix + "_him": him,
                prefix + "_his": his,
                prefix + "_home": home,
                prefix + "_food": food,
                prefix + "_skill": skill,
            }
        )

    def text(self):
        return "\n".join(self.paragraphs)


def opening(s, days=None):
    """The sentences up to the day of the story, and how the next sentence starts: with one of
    `days` where the plot needs a certain kind of day ("" is no day at all)."""
    s.vars["trait"] = s.pick(cast.GOOD_TRAITS)
    s.vars["place"] = s.pick(list(cast.PLACES))
    s.vars["at_place"] = (
        "on " if s.vars["place"] in ("the beach", "the hill", "the farm") else "in "
    ) + s.vars["place"]
    s.vars["spot"] = s.pick(cast.PLACES[s.vars["place"]])
    s.vars["other_spot"] = s.pick([p for p in cast.PLACES[s.vars["place"]] if p != s.vars["spot"]])
    s.vars["colour"] = s.pick(cast.COLOURS)
    s.vars["toy"] = s.pick(cast.TOYS)
    live = "[{h} lived in {h_home}|{h_he} lived in {h_home}|{h_his} home was {h_home}]."
    likes = (
        "[{h} loved {h_food} more than anything|{h_he} liked {h_food} and long walks|"
        "{h} liked to sing in the morning|every day {h_he} played outside until the sun went down|"
        "{h_he} was always ready for a new game|everybody in {h_his} village liked {h_him}|"
        "{h} had many questions about the world]."
    )
    form = s.rng.random()
    if days and 0.6 <= form < 0.85:  # the opening that tells of a day itself
        form = s.rng.random() * 0.6
    if form < 0.45:
        first = (
            "[Once upon a time, there was|Once upon a time, there was|Once upon a time, there "
            "lived|There once was|Long ago, there was] a [{trait} little|little|small and "
            "{trait}|{trait} young] {h_kind} named {h}."
        )
        rest = s.pick([live, likes, live + " " + likes, live])
        return [first, rest], s.pick(
            days or ["One day, ", "One sunny morning, ", "One afternoon, ", "One day, "]
        )
    if form < 0.6:
        return [
            (
                "[Once upon a time, a|Once upon a time, a|In a land far away, a] [little|{trait} "
                "little|young] {h_kind} named {h} lived in {h_home}."
            ),
            s.pick([likes, ""]),
        ], s.pick(days or ["One day, ", "One bright morning, ", "One windy day, "])
    if form < 0.85:
        return [
            "[One day|One day|One morning|One warm afternoon|One day in spring|One day in autumn], "
            "a [little|little|{trait} little|young] {h_kind} named {h} [went out to play|was "
            "walking along the path|woke up early|was looking for something to do|was on {h_his} "
            "way to visit a friend|was feeling very {mood}]."
        ], s.pick(["", "soon, ", "that day, "])
    return [
        "{h} was a [{trait} little|little|{trait} young] {h_kind}.",
        s.pick([live, likes, live]),
    ], s.pick(days or ["One day, ", "One morning, ", "One afternoon, "])


ENDINGS = {
    "away": [
        "{h} went home with a happy heart",
        "They laughed all the way home",
        "They sat close together " "and watched the sun go " "down",
        "Then they went home and ate {h_food}",
    ],
    "home": [
        "Then they sat down and ate {h_food}",
        "They sat by the window and watched the sun go down",
        "{h} hummed a song all evening",
    ],
    "night": [
        "It was the best night {h} could remember",
        "Then they went to bed and had sweet dreams",
        "{h} fell asleep with a smile on {h_his} face",
    ],
}
ANYWHERE = [
    "That night, {h} slept very well",
    "And they all lived happily",
    "When the stars came out, {h} " "fell asleep with a smile",
    "It was the best day {h} could remember",
    "And from that day on, {h} and {f} were the best of " "friends",
]


def close(s, lines, scene="away"):
    """A last paragraph: the lesson of the plot, then a quiet picture that fits where and when it
    ends.
    """
    endings = ENDINGS[scene] + (ANYWHERE if scene != "night" else ANYWHERE[-1:])
    s.say(*lines, s.pick(endings) + "." if s.rng.random() < 0.75 else "")
    if s.rng.random() < 0.25:
        s.say("The end.")
