"""Plots at home and among neighbors: each takes a Story that has its hero and tells it, opening to
close.
"""
import cast
from story import close, opening


def broken(s):
    first, day = opening(s, ["One rainy day, ", "One rainy afternoon, ", "One wet morning, "])
    s.vars["pot"] = s.pick(cast.FRAGILE)
    s.vars["who"] = s.pick(["mother", "grandmother", "father", "grandfather", "aunt", "uncle"])
    female = s.vars["who"] in ("mother", "grandmother", "aunt")
    s.vars.update(
        {
            "w_he": "she" if female else "he",
            "w_him": "her" if female else "him",
            "w_his": "her" if female else "his",
        }
    )
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} was [playing inside|dancing in the kitchen|running through the house] because "
        "[the weather was bad|it was too wet outside].",
        "On the table stood a {colour} {pot}. It belonged to {h_his} {who}, and {w_he} loved it "
        "very much.",
    )
    s.say(
        "{h} [ran too fast|turned around too quickly|kicked a ball] and [bumped into|hit] the "
        "table.",
        "Crash! The {pot} fell [down|on the floor] and broke into [two|three|many] pieces.",
        "{h} was [afraid|scared|frightened]. {h_he} hid the pieces [under the bed|behind the "
        "door|in a basket].",
    )
    s.say(
        "{h_his} friend {f_the} came to visit and saw {h_his} [sad|pale|worried] face.",
        '"I broke the {pot}," [whispered|said] {h}. "[Now nobody will like me.|What shall I '
        'do?|What can I do now?]"',
        '"[You should tell the truth|Tell {w_him} what happened|Say that you are sorry]," said '
        '{f}. "[I will come with you|It will make you feel better|You can do it]."',
    )
    s.say(
        "So {h} took a deep breath and went to {h_his} {who}.",
        '"I broke your {colour} {pot}," {h_he} said. "I am very sorry."',
        "{h_his} {who} was [quiet for a moment|sad for a moment|surprised]. Then {w_he} [gave "
        "{h_him} a hug|smiled|took {h_his} hand].",
        '"[Thank you for telling me|I am glad that you told me the truth|A {pot} can be mended]," '
        '{w_he} said. "[Let us mend it together|We can fix it with glue]."',
    )
    close(
        s,
        [
            (
                "They [put the pieces together|glued the pieces together] with care, and {f} "
                "helped too."
            ),
            (
                "[The {pot} had a few cracks, but it was still beautiful|When they were done, the "
                "{pot} looked almost like new]."
            ),
            (
                "{h} learned that [it is good to tell the truth|the truth is lighter than a "
                "secret|saying sorry takes courage]."
            ),
        ],
        "home",
    )


def afraid(s):
    first, day = opening(s, [""])
    s.cast_member("f")
    fear, noise, truth = s.pick(
        [
            ("the dark", "a strange shape on the wall", "only a coat on a chair"),
            ("thunder", "a loud boom over the roof", "only the clouds bumping together"),
            ("ghosts", "a white thing in the window", "only a sheet in the wind"),
            ("monsters", "a scratching sound at the door", "only a branch of the apple tree"),
            ("the wind", "a long howl in the chimney", "only the stove pipe singing"),
        ]
    )
    s.vars.update(fear=fear, noise=noise, truth=truth)
    s.say(
        *first,
        "But {h} had a secret: {h_he} was afraid of {fear}.",
        "{h_he} [did not want anyone to know|had never told anyone]."
    )
    s.say(
        "[One night|That night|One evening], {h_his} friend {f_the} came to [stay with "
        "{h_him}|sleep at {h_his} house].",
        "They [told stories|ate {h_food}|played games] until it was late.",
        "[Then|Suddenly], there was {noise}!",
        "{h} [pulled the blanket over {h_his} head|began to shake|held {h_his} breath].",
    )
    s.say(
        '"[Are you afraid|Did that frighten you|Are you scared]?" asked {f}.',
        '"[A little|Yes, very '
        'much]," [whispered|said] '
        '{h}. "[Please do not laugh '
        'at me|But please do not '
        'laugh]."',
        '"I will not laugh," said {f}. "[I am afraid sometimes too|Everyone is afraid of '
        'something]. Let us go and look together."',
        "{f} took a [lamp|candle], and {h} stayed close behind {f_him}.",
    )
    s.say(
        "[Step by step|Slowly|Very quietly] they went to look.",
        "And what did they find? It was {truth}!",
        "{h} [laughed out loud|began to laugh|let out a long breath]. {f} laughed too.",
    )
    close(
        s,
        [
            '"[That was not so bad|I was brave]," said {h}.',
            '"[You were very brave|Being brave means '
            'that you are afraid and look anyway]," said '
            "{f}.",
            "After that, {h} was not so afraid of {fear} any more.",
        ],
        "night",
    )


def baking(s):
    first, day = opening(s, ["One day, ", "One morning, ", "One Sunday, "])
    dish, missing = s.pick(cast.DISHES)
    s.vars.update(
        dish=dish,
        missing=missing,
        pl="them" if missing.endswith("s") else "it",
        many="many" if missing.endswith("s") else "much",
    )
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} wanted to make {dish} for {h_his} [mother|father|grandmother|grandfather].",
        "{h_he} put on [an apron|a clean apron] and [opened the cupboard|looked on the shelf|got "
        "out a big spoon].",
        (
            "But there were no {missing} left!"
            if missing.endswith("s")
            else "But there was no {missing} left!"
        ),
    )
    s.say(
        '"[Oh dear|Oh no]," said {h}. "I cannot make {dish} without {missing}."',
        "So {h_he} went to {h_his} neighbor, {f_the}, and knocked on the door.",
        '"[Hello|Good day], {f}," said {h}. "[Do you have|Could you give me] some {missing}?"',
        '"[Yes, I do|Of course|I have plenty]," said {f}, "but [I have nobody to talk to|I am all '
        'alone today|I have never made {dish}]. May I [help|come with you]?"',
    )
    s.say(
        '"[Yes, please|That would be nice|I would like that]!" said {h}.',
        "They carried the {missing} home. {h} stirred, and {f} [sang|read the recipe|lit the "
        "stove].",
        "[Soon|Before long|After a while] the whole house smelled [wonderful|sweet|good].",
        "[But {f} sneezed, and flour flew everywhere. They both had white noses and laughed|{h} "
        "burned a finger, and {f} cooled it with water|They had to wait, so they told each other "
        "stories].",
    )
    close(s, [
        "[At last|Finally], {dish} stood on the table.",
        "[Everyone|The whole family] ate together, "
        "and {f} got the biggest piece." if "pot" not in dish and "bowl" not in dish else
        "Everyone ate together, and {f} had two helpings.",
        '"[It tastes better because we made it together|Food tastes best with friends]," said {h}.',
    ], "home",
          )


def garden(s):
    first, day = opening(s)
    s.vars["seed"] = s.pick(cast.SEEDS)
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} [found a small seed|got a small seed from {h_his} grandmother|bought a small "
        "seed at the market].",
        '"It is a {seed} seed," said {h_his} friend {f_the}. "[Put it in the ground and give it '
        'water|If you plant it, something good will come]."',
    )
    s.say(
        "{h} dug a hole [behind the house|in the garden|beside the gate], put in the seed and gave "
        "it water.",
        "Then {h_he} sat down and waited. Nothing happened.",
        '"[Grow|Please grow]!" {h_he} [said|shouted] to the ground. [Still nothing happened|The '
        'ground did not answer].',
        "The next day, {h} [wanted to dig the seed up again|was cross and wanted to stop].",
    )
    s.say(
        '"[Wait|Stop]," said {f}. "[A seed needs time|Good things need time|You cannot see it, but '
        'it is working under the ground]. It needs [water, sun and time|rain, sun and a friend]."',
        "So {h} [waited|was patient]. Every morning {h_he} gave the seed some water[, and every "
        "evening {h_he} sang it a song||]. ",
        "[It rained, and the sun shone|A week went by|Many days went by].",
        "And then, one morning, there was a tiny green leaf!",
    )
    close(
        s,
        [
            '"[Look, {f}, look|Come quickly]!" cried {h}. "[It is growing|It is really growing]!"',
            (
                "The {seed} plant grew and grew until it was [taller than {h}|as tall as the "
                "fence|the finest in the garden]."
                if s.vars["seed"] not in ("carrot", "tulip")
                else "The {seed} grew and grew until it was the finest in the garden."
            ),
            (
                "{h} learned that [it is worth waiting for good things|good things take time|a "
                "little care every day goes a long way]."
            ),
        ],
        "home",
    )


def practice(s):
    first, day = opening(s)
    own = {"swim": "swim", "climb": "climb the rope",
           "fly": "jump over the stream"}.get(s.vars["h_skill"])
    skill, where, fails = s.pick([k for k in cast.SKILLS if k[0] != own])
    s.vars.update(skill=skill, where=where, fails=fails)
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} saw {h_his} friend {f_the} {where}.",
        "{f} could {skill} very well, and {h} " "wanted to {skill} too.",
        '"[Will you teach me|Can you show me how]?" asked {h}.',
        '"[Of course|Yes, I will|With pleasure]," '
        'said {f}. "[It is not hard|You only need '
        'to practice|Watch me first]."'
    )
    s.say(
        "{h} tried it, but {h_he} {fails}.",
        "[{h_he} tried again, but it was no better|{h_he} tried "
        "again, and {h_he} {fails} again|The second time was no "
        "better].",
        '"[I will never learn it|I cannot do it|It is too hard]!" said {h}, and [sat down|turned '
        'away|stamped {h_his} foot].',
    )
    s.say(
        '"[I could not do it at first either,|Do you know how often I failed?]" said {f}. "[I tried'
        ' a hundred times|I tried every day for a whole summer]. [Try once more|Do not give up]."',
        "So {h} [got up|stood up] and practiced [every day|every morning|again and again].",
        "[On the first day, {h_he} was bad at it. On the second day, {h_he} was a little "
        "better|Little by little, {h_he} got better].",
        "And [one day|on the seventh day|at the end of the week], {h} could {skill}!",
    )
    close(
        s,
        [
            '"[Look at me|I can do it|I did it]!" [called|cried|shouted] {h}.',
            "{f} [clapped|cheered|jumped for joy].",
            (
                "{h} was proud. {h_he} knew now that [practice helps more than wishes|you must "
                "fall before you can fly|nobody is good at everything right away]."
            ),
        ],
    )


def birthday(s):
    first, day = opening(s, ["One day, ", "One morning, ", "One bright morning, "])
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} woke up with a smile, because it was {h_his} birthday.",
        "{h_he} went to see {h_his} friend {f_the}."
    )
    s.say(
        '"[Hello|Good morning], {f}," said {h}. "[Do you know what day it is|Is today not a '
        'special day]?"',
        '"[No, I do not|Not to me]," said {f}. "[I am busy|I have a lot to do]. [Good-bye|Come '
        'back later]!"',
        "{h} [walked away with a heavy heart|was sad]. {h_he} thought that {f} [had forgotten "
        "{h_him}|did not like {h_him} any more].",
        "{h_he} sat alone {at_place} [until evening|for a long time].",
    )
    s.say(
        "When it was getting dark, {h} went home.",
        "The house was [quiet|dark]. {h_he} opened the door.",
        '"Surprise!" [cried|shouted] [many voices|all {h_his} friends]. There were '
        '[candles|lanterns|balloons] everywhere, and in the middle stood {f} with a big cake.',
        '"[I did not forget|How could I forget you]," said {f}. "[I was busy because of the '
        'party|I had to bake the cake]. Happy birthday, {h}!"',
    )
    close(
        s,
        [
            (
                "{f} gave {h_him} a {colour} {toy}[| with a ribbon|, and it was just what {h_he} "
                "had wished for]."
            ),
            (
                "[They danced and sang until midnight|Everyone ate cake|They played games and ate "
                "cake]."
            ),
        ],
        "night",
    )


def winter(s):
    first, day = opening(s, [""])
    s.cast_member("f")
    keeps = (
        "berries",
        "carrots",
        "honey",
        "cheese",
        "nuts",
        "apples",
        "turnips",
        "corn",
        "biscuits",
        "crunchy roots",
    )
    s.vars["store"] = (
        s.vars["h_food"] if s.vars["h_food"] in keeps else s.pick(["potatoes", "apples", "beans"])
    )
    s.say(
        *first,
        "[Winter came|It was a cold winter], and [the snow was deep|everything was white].",
        "{h} had [gathered plenty of {store} and firewood|a warm stove and plenty of {store}].",
        "[One evening|One cold night], somebody knocked at the door."
    )
    s.say(
        "It was {f}, a {f_kind} from [the other side of the hill|across the river].",
        "{f} was [cold and hungry|shaking with cold].",
        '"[My house fell down in the storm|The snow broke my roof]," said {f}. "[May I come in|Can '
        'I stay for one night]?"',
        "{h} [looked at {h_his} food|thought about it]. There was enough for one, but was there "
        "enough for two?",
        "Then {h_he} looked at {f} and saw [that {f_he} was crying|how thin {f_he} was].",
    )
    s.say(
        '"[Come in|Come in and get warm]," said {h}. "[What I have is enough for both of us|We '
        'will share what I have]."',
        "They [sat by the fire|sat close to the stove] and ate {store}.",
        "All winter they lived together. {f} [told stories|played the fiddle|swept the floor], and "
        "{h} was never [bored|lonely].",
    )
    close(s, [("When spring came, {h} helped {f} to build a new house[| with a strong roof|, right "
               "next door]."),
              ("{h} [had less food than before, but more joy|learned that a shared meal tastes"
               " better]."), ], "home",
          )


def gift(s):
    first, day = opening(s, [""])
    s.cast_member("f")
    s.vars["who"] = s.pick(["mother", "grandmother", "aunt"])
    s.vars["wish"] = s.pick(
        ["a necklace", "a new coat", "a golden clock", "a fine silk shawl", "a teapot"])
    s.vars["made"] = s.pick(
        [
            "a picture of the two of them",
            "a small wooden bird",
            "a wreath of wild flowers",
            "a song with three verses",
            "a box covered with shells",
        ]
    )
    s.say(
        *first,
        "{h_his} {who} would soon have a birthday, and {h} wanted to give her a present.",
        "In the window of a shop {h_he} saw {wish}. But it cost [ten|twenty|a hundred] coins, and "
        "{h} had only [one|two|three].",
    )
    s.say(
        "{h} went home [with slow steps|with a long face]. On the way {h_he} met {h_his} friend "
        "{f_the}.",
        '"[What is the matter|Why are you so quiet]?" asked {f}. "I have no present for my {who}," '
        'said {h}. "[Everything costs too much|I do not have enough money]."',
        '"[Does it have to cost money|Why not make something yourself]?" said {f}. "[The best '
        'presents are made by hand|Something from you is worth more than gold]."',
    )
    s.say(
        "{h} [thought about it all night|thought for a while]. Then {h_he} knew what to do.",
        "For three days {h_he} worked in secret, and {f} [kept watch at the door|helped where "
        "{f_he} could].",
        "[It was not easy, and twice {h_he} had to start again|Sometimes it went wrong, but {h_he}"
        " did not stop].", "At last it was ready: {made}.",
    )
    close(
        s,
        [
            (
                "On the birthday, {h_his} {who} opened the present, and her eyes [shone|filled "
                "with tears of joy]."
            ),
            (
                '"[This is the most beautiful present of all|I will keep it forever|Nobody has ever'
                ' given me something so fine]," she said, and [hugged {h} for a long time|kissed '
                '{h} on the nose].'
            ),
            "{h} looked at {f} and smiled.",
        ],
        "home",
    )


def sleepless(s):
    first, day = opening(s, [""])
    s.cast_member("f")
    s.cast_member(
        "o", kind=s.pick([a for a in cast.ANIMALS if a not in (s.vars["h_kind"], s.vars["f_kind"])])
    )
    s.vars["advice"], s.vars["outcome"] = s.pick(
        [
            ("count sheep", "But the sheep would not stand still, and {h_he} lost count."),
            ("drink warm milk", "But after that {h_he} only had a full belly."),
            ("stand on one leg", "But {h_he} fell over with a bump."),
            ("hang upside down", "But all the blood ran to {h_his} head."),
            ("run around the house ten times", "But now {h_he} was more awake than before."),
        ]
    )
    s.say(
        *first,
        "One night, {h} could not sleep. {h_he} [turned to the left and to the right|pulled the "
        "blanket up and pushed it down again].",
        "[The moon was too bright|It was too quiet|There were too many thoughts in {h_his} head]. "
        "So {h_he} got up and went outside.",
    )
    s.say(
        'There {h_he} met {o_the}. "I cannot sleep," said {h}. "[What can I do|What do you do when '
        'you cannot sleep]?"',
        '"[I always {advice}|You must {advice}]," said {o}.',
        "{h} tried it. " + s.vars["outcome"],
    )
    s.say(
        'Then {h_he} met {h_his} friend {f_the}. "I cannot sleep," said {h}.',
        '"[Is something on your mind|Are you worried about something]?" asked {f}.',
        "And {h} told {f_him} [about the quarrel {h_he} had had with {h_his} brother|that {h_he} "
        "had forgotten to say good night to {h_his} mother|about the long journey that {h_he} "
        "would make tomorrow|that {h_he} missed {h_his} grandfather].",
        "{f} [listened to it all|sat beside {h_him} and listened]. When {h} was finished, {h_he} "
        "felt [much lighter|better].",
    )
    close(
        s,
        [
            (
                "[{f} hummed a quiet song|Together they looked at the stars], and {h}'s eyes grew "
                "heavy."
            ),
            "Soon {h} went back to bed, and this time sleep came quickly.",
            "[Sometimes it helps just to tell a friend|A worry is smaller when you share it].",
        ],
        "night",
    )


def neighbor(s):
    first, day = opening(s, ["One day, ", "One day, ", "One morning, "])
    s.cast_member("f")
    s.cast_member(
        "o",
        kind=s.pick(
            [
                a
                for a in ("bear", "badger", "crow", "goat", "owl", "dog")
                if a not in (s.vars["h_kind"], s.vars["f_kind"])
            ]
        ),
    )
    s.vars["looks"] = s.pick(
        [
            "was very big and never smiled",
            "had a deep voice and a dark coat",
            "had a scar over one eye",
            "never came out in the daytime",
        ]
    )
    s.vars["why"] = s.pick(
        [
            "{o_he} was shy",
            "{o_he} did not know anybody",
            "{o_he} thought that nobody liked {o_him}",
            "{o_he} missed {o_his} old home",
        ]
    ).format(**s.vars)
    s.say(
        *first, day +
        "a new neighbor moved into the empty house across the road. It was a {o_kind} named {o}, "
        "who {looks}.",
        '"[Stay away from {o_him}|I do not trust {o_him}]," said {h_his} friend {f_the}. '
        '"[Everybody says that {o_he} is dangerous|They say that {o_he} bites]."',
    )
    s.say(
        "But {h} [was curious|was not so sure]. In the evening {h_he} saw {o} at the window, all "
        "alone.",
        '"[Somebody who is dangerous does not look so sad|{o} looks lonely to me]," said {h}. '
        '{h_he} packed {h_food} into a basket and knocked on the door.',
        "The door opened [slowly|with a creak]. {h}'s heart beat fast.",
        '"[Welcome to our village|Good evening]," said {h}. "[I brought you something|This is for '
        'you]."',
    )
    s.say(
        "{o} looked at the basket. Then a big smile spread over {o_his} face.",
        '"[Nobody has visited me yet|You are the first to say hello]," said {o}. "[Please come '
        'in.|Will you eat with me?]"',
        "They ate together, and {o} [told stories about the sea|played the violin|showed {h_him} a "
        "box full of shells]. {o} had kept away because {why}.",
    )
    close(
        s,
        [
            (
                "The next day, {h} took {f} along. [At first {f} hid behind {h}, but soon they "
                "were all laughing|{f} was ashamed and said that {f_he} was sorry]."
            ),
            (
                "[They learned not to believe everything that people say|You cannot know someone "
                "before you say hello|From then on, {o} was never alone again]."
            ),
        ],
        "home",
    )
