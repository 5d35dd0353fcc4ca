"""Plots in the open: each takes a Story that has its hero, and tells it from opening to close."""
import cast
from story import close, opening


def lost_thing(s):
    first, day = opening(s)
    s.cast_member("f")
    s.say(
        *first,
        (day + "{h} [took {h_his} {colour} {toy} to {place}|went to {place} with {h_his} {colour} "
         "{toy}]."),
        "[It was {h_his} favorite thing in the world|{h_he} had got it from {h_his} [grandmother|"
        "grandfather|mother]|"
        "{h_he} took it everywhere]."
    )
    s.say(
        "{h} [ran and jumped and sang|chased the butterflies|lay down and looked at the "
        "clouds|counted the birds in the sky] for a long time.",
        "[But when|When] it was time to go home, the {toy} was [gone|not there]!",
        "{h} looked left and right, but {h_he} could not see it anywhere.",
        "{h_he} [began to cry|felt a lump in {h_his} throat|was very sad].",
    )
    s.say(
        "[Just then|Then|After a while] {h_his} friend {f_the} came [by|along|down the path].",
        '"[Why are you crying|What is wrong|Why do you look so sad]?" asked {f}.',
        '"I [have lost|lost|cannot find] my {colour} {toy}," said {h}. "I looked everywhere!"',
        '"[Do not worry|Do not be sad|Dry your eyes]," said {f}. "[I will help you look|We will '
        'find it together|Four eyes see more than two]."',
    )
    s.say(
        "First they looked {other_spot}.",
        "[There was only|They found nothing but|They saw only] "
        "[a sleepy snail|an old shoe|a busy beetle|a grey feather|a shiny stone].",
        "[Then|Next] they looked {spot}.",
        '"[Look|Here|Come and see]!" [cried|called|shouted] {f}. [There was|There it was,|There '
        'lay] the {colour} {toy}!',
    )
    close(
        s,
        [
            "{h} [hugged {h_his} friend|jumped for joy|was so happy that {h_he} danced].",
            (
                '"Thank you, {f}!" {h_he} said. "[You are a good friend|I could not have found it '
                'alone|Now let us play together]."'
            ),
            (
                "[From then on, {h} took better care of {h_his} {toy}|They played with the {toy} "
                "until evening|{h} learned that it is easier to look for things together]."
            ),
        ],
    )


def stuck_high(s):
    first, day = opening(s)
    s.vars["thing"] = s.pick(cast.FLYING)
    s.cast_member("f", good_at=("climb", "fly"))
    s.vars["go_up"] = ("spread {f_his} wings and flew up" if s.vars["f_skill"] == "fly" else
                       "climbed from branch to branch").format(**s.vars)
    s.say(
        *first, day + "{h} was [playing|walking|running] {at_place} with a {colour} {thing}.",
        "The wind was [strong|wild|blowing hard] [that day|on the hill tops|and the trees were "
        "bending].",
    )
    s.say(
        "[Suddenly|All at once], the wind [pulled|took|tore] the {thing} out of {h_his}"
        " [hands|grip].", "It flew up and up, and got stuck at the top of a tall tree.",
        '"[Oh no|Oh dear]!" cried {h}. "[My {thing}|Come back]!"',
    )
    s.say(
        "{h} [jumped as high as {h_he} could|threw a stick at it|shook the tree with all {h_his} "
        "strength], but [it did not help|the tree was too tall|the {thing} did not move].",
        "Then {h_he} [stood on a box|stood on a big stone|reached up with a long stick], but it "
        "was still too high.",
        "{h} sat down [on the ground|in the grass] and [sighed|did not know what to do|felt very "
        "small].",
    )
    s.say(
        "A {f_kind} named {f} [had seen everything|was watching from a bush|heard {h_him}].",
        '"[Can I help you|Do you need help|Shall I get it for you]?" asked {f}. '
        + ('"I can fly very high."' if s.vars["f_skill"] == "fly" else '"I am good at climbing."'),
        '"[Yes, please|Oh yes, please|Would you do that]!" said {h}.',
        "{f} {go_up}, [took the {thing}|freed the {thing} from the twigs|pulled the {thing} loose] "
        "and brought it [down|back] to {h}.",
    )
    close(
        s,
        [
            '"Thank you, {f}!" said {h}. "[How can I thank you|What can I do for you]?"',
            '"[You can play with me|Let me play with it too|Be my friend]," said {f}.',
            (
                "So they [played together|played with the {thing}|ran across {place}] [all "
                "afternoon|until it was dark], and {h} held on tight."
            ),
        ],
    )


def sharing(s):
    first, day = opening(s)
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} and {h_his} friend {f_the} went to {place}.",
        "There, {spot}, they found a {colour} {toy}."
    )
    s.say(
        '"I saw it first!" [said|cried|shouted] {h}.',
        '"No, I saw it first!" [said|cried|shouted] {f}.',
        "{h} pulled on one side, and {f} pulled on the other.",
        "They pulled and pulled until they both [fell over|fell down|landed in the mud].",
        "The {toy} [rolled away|fell into a puddle|slipped out of their hands], and now they were "
        "both [angry|cross|sad].",
    )
    s.cast_member(
        "o", kind=s.pick([a for a in cast.ANIMALS if a not in (s.vars["h_kind"], s.vars["f_kind"])])
    )
    s.say(
        "[An old|A wise old] {o_kind} named {o} [sat nearby|was resting in the shade|heard the "
        "noise] and [laughed|shook {o_his} head].",
        '"[There is one {toy} and there are two of you|A {toy} is more fun for two]," said {o}. '
        '"[Why do you not take turns|Can you not share it]?"',
        "{h} looked at {f}. {f} looked at {h}.",
        '"[I am sorry|I was not kind]," said {h}. "You can have it first."',
        '"[I am sorry too|Thank you]," said {f}. "Then it is your turn."',
    )
    close(
        s,
        [
            (
                "So they took turns, and [it was much more fun than playing alone|soon they were "
                "laughing again|nobody was angry any more]."
            ),
            (
                "[They even let {o} have a turn|{o} watched them and smiled|{h} learned that "
                "sharing makes a game better]."
            ),
        ],
    )


def lost_little_one(s):
    first, day = opening(s)
    baby, sound, at, home = s.pick(
        [
            ("duckling", "peep", "on", "the lake"),
            ("kitten", "meow", "in", "the mill"),
            ("lamb", "baa", "on", "the mountain"),
            ("chick", "cheep", "in", "the hen house"),
            ("puppy", "woof", "in", "the village"),
            ("baby owl", "hoo", "in", "the old tower"),
        ]
    )
    s.vars.update(baby=baby, sound=sound, at=at, home=home)
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} was [walking|playing] {at_place} with {h_his} friend {f_the}.",
        'Then they heard a small sound. "[{sound}, {sound}|{sound}]!" it went.',
        "{h} looked {spot}, and there sat a [tiny|little|wet] {baby}, all alone."
    )
    s.say(
        '"[Where is your mother|Are you lost|What are you doing here]?" asked {h}.',
        '"I [followed a butterfly|chased a leaf|walked too far], and now I do not know the way '
        'home," said the {baby}.',
        "A big tear ran down its face.",
        '"[Do not cry|Do not be afraid]," said {f}. "[We will take you '
        'home|We will find your mother]. Where do you live?"',
        '"I live {at} {home}," said the {baby}.',
    )
    s.say(
        "{h} [carried|held] the {baby} [in {h_his} arms|close to keep it warm], and they set off.",
        "They went [over the bridge|through the tall grass|past the church|around the big rock] "
        "and [along the stream|across a field|up a steep path|through a gate].",
        "[It was a long way, but {h} did not give up|They were tired, but they did not stop|{f} "
        "sang a song so that the {baby} would not be sad].",
        "At last they came to {home}.",
    )
    s.say(
        "The mother of the {baby} came running.",
        '"My [little one|dear child]!" she cried. "I looked for ' 'you everywhere!"',
        "She thanked {h} and {f} and gave them [a basket of {f_food}|some {h_food}|a warm drink].",
    )
    close(
        s,
        [
            "The {baby} [waved|waved good-bye|said thank you].",
            "{h} felt [proud|warm inside|glad], because {h_he} had helped someone [small|in need].",
        ],
    )


def in_the_mud(s):
    first, day = opening(s)
    s.cast_member("f")
    s.cast_member(
        "o",
        kind=s.pick(
            [
                a for a in ("bear", "goat", "dog", "badger")
                if a not in (s.vars["h_kind"], s.vars["f_kind"])
            ]
        ),
    )
    s.vars["load"] = s.pick(["apples", "pumpkins", "wood", "hay", "potatoes", "honey jars"])
    s.say(
        *first,
        day + "{h} and {f_the} were pulling a cart full of {load} to the [market|village|mill].",
        "The road was wet after the rain.",
        "[Suddenly|Then] a wheel sank deep into the mud, and the cart " "[stopped|would not move]."
    )
    s.say(
        '"[Pull|Let us pull]!" said {h}. They pulled as hard as they could, but the cart did not '
        'move.',
        '"[Push|Let us push]!" said {f}. They pushed and pushed, but the wheel only sank deeper.',
        "A big {o_kind} named {o} came along.",
        '"I am [strong|very strong]," said {o}. "[Let me try|Watch me]."',
        "{o} pulled until {o_his} face was red. But even {o} could not move the cart.",
    )
    s.say(
        "{h} [sat down and thought|looked at the wheel and thought]. Then {h_he} had an idea.",
        '"[The cart is too heavy|It is too heavy like this]," {h_he} said. "[Let us take the {load}'
        ' out first|We must unload it first], and put [flat stones|some branches|a board] under the'
        ' wheel."', "So they did. {f} and {o} carried the {load}, and {h} worked at the wheel.",
    )
    close(s,
          [('"[One, two, three|Ready, steady, go]!" [called|shouted] {h}. They all pulled '
            'together, and the cart rolled out of the mud!'),
           '"[You may be small, but you are clever|A good idea is stronger than I am]," said {o}.',
           ("{h} [smiled|laughed] and gave {o} [a share of the {load}|some of the {load}] to"
            " say thank you."), ],
          )


def rainy_picnic(s):
    first, day = opening(s)
    s.cast_member("f")
    s.say(
        *first,
        day + "{h} and {h_his} friend {f_the} [planned|wanted to have] a picnic {at_place}.",
        "They packed {h_food} and {f_food} into a basket and set off."
        if s.vars["h_food"] != s.vars["f_food"]
        else "They packed a big bag of {h_food} into a basket and set off.",
        "[The sun was shining|The sky was blue], and {h} [hummed a song|skipped along the path]."
    )
    s.say(
        "But when they [sat down|opened the basket], a [dark|big grey] cloud came over the hill.",
        "[Plip, plop|Drip, drop]! It began to rain.",
        "[Soon they were wet from head to foot|The rain fell harder and harder].",
        '"Our picnic is [ruined|spoiled]!" [cried|said] {h}. {h_he} was [close to tears|so '
        'sad|very cross].',
    )
    s.say(
        "{f} looked around and saw [a big hollow tree|a small cave|an old wooden hut|a stone"
        " bridge].", '"[Come|Quick, come with me]!" {f_he} said. "It is dry in there."',
        "They ran as fast as they could. Inside, it was [warm and dry|dry and quiet|cozy].",
        "They [spread the blanket on the ground|sat down side by side] and opened the basket.",
        "[They ate and listened to the rain|They ate everything and made up songs about the "
        "rain|While the rain fell, {f} told a funny story about a fish with a hat].",
    )
    close(s, [
        "When the rain stopped, [there was a rainbow over {place}|a rainbow stood over {place}].",
        '"[This was the best picnic of all|I am glad that it rained]," said {h}, and {f} [agreed|'
        "nodded|laughed].",
    ],
          )


def in_the_hole(s):
    first, day = opening(s)
    s.cast_member("f", good_at=("squeeze", "dig", "swim"))
    where, how = {
        "squeeze": (
            "a narrow crack between two rocks",
            "slipped into the crack, for {f_he} was " "very small,",
        ),
        "dig": ("a deep hole in the ground", "dug a tunnel with {f_his} strong paws"),
        "swim": ("the deep part of the pond", "dived to the bottom, for {f_he} could swim very "
                 "well,"),
    }[s.vars["f_skill"]]
    s.vars.update(where=where, how=how.format(**s.vars),
                  item=s.pick(["key", "ring", "coin", "marble", "bell"]),
                  )
    s.say(
        *first,
        day + "{h} was [walking home|going home] with a [small|shiny] {item} that belonged to "
        "{h_his} [mother|father|grandmother].",
        "{h_he} [tossed it into the air|played with it] as {h_he} walked.",
        "But {h_he} [stumbled|was not " "careful], and the {item} fell " "into {where}."
    )
    rude = s.rng.random() < 0.4
    s.say(
        '"[What have I done|Oh no]!" said {h}. {h_he} [reached in with a stick|lay down and '
        'stretched out {h_his} arm], but {h_he} could not reach it.',
        "Then {h_he} met a {f_kind} named {f}.",
        '"[Please help me,|Can you help me?]" said {h}. "The '
        '{item} is down there, and it is not mine."',
        ('"[You never say hello to me|You laughed at me yesterday]," said {f}.'
         if rude else '"[I will try|Let me see what I can do]," said {f}.'),
    )
    if rude:
        s.say(
            '"I [was not kind to you|was rude]," said {h}. "I am sorry. I will not do it again."',
            '"[That is good to hear|Then we can be friends]," said {f}.',
            "{f} {how} and came back with " "the {item}.",
        )
    else:
        s.say("{f} {how} and [came back|returned] with the {item}.", '"Here it is!" {f_he} said.')
    close(
        s,
        [
            (
                "{h} was so [happy|thankful] that {h_he} [invited {f} to supper|shared {h_his} "
                "{h_food} with {f}]."
            ),
            (
                "[{h} learned that small friends can be a great help|After that, {h} was careful "
                "with things that were not {h_his} own|{h} never forgot that day]."
            ),
        ],
    )


def treasure(s):
    first, day = opening(s)
    s.cast_member("f")
    s.vars["chest"] = s.pick(
        ["an old map", "a map in a bottle", "a torn map", "a map on a piece of bark"])
    s.vars["way"] = s.pick(
        ["three tall pines", "two white birches", "a rock like a sleeping dog", "a broken bridge"]
    )
    s.vars["mark"] = s.pick(["a round stone", "a red post", "an empty well", "a ring of mushrooms"])
    s.vars["prize"], s.vars["joy"] = s.pick(
        [
            ("a box of picture books", "read to each other"),
            ("a bag of marbles", "played with the marbles"),
            ("a jar of honey drops", "sat in the grass and ate honey drops"),
            ("two wooden swords", "played knights"),
            ("a little golden flute", "took turns with the flute"),
            ("a box of paints", "painted the old fence in every color"),
        ]
    )
    s.say(
        *first,
        day + "{h} found {chest} {spot} {at_place}.",
        '"[It shows the way to a treasure|There is a cross on it|Maybe it leads to gold]!" {h_he} '
        'said, and ran to {h_his} friend {f_the}.',
    )
    s.say(
        "They [followed the map|studied the map and set off].",
        "First they had to find {way}. [That was easy|That took a long time|{f} saw it first].",
        "Then they had to walk [twenty|thirty|fifty] steps to {mark}.",
        '"[One, two, three|Count with me]," said {h}, [but {f} forgot a number, and they had to '
        'start again|and they counted every step|and they did not dare to miss a step].',
    )
    s.say(
        "There they began to dig. They dug until [their arms hurt|their noses were black|the sun "
        "was low].",
        '"[There is nothing here|Maybe the map is wrong]," said {f}. {f_he} was ready to give up.',
        '"[A little more|Just one more minute]," said {h}. And then there was a clonk! They had '
        'hit a wooden chest.',
    )
    close(
        s,
        [
            "Slowly they opened it. Inside lay {prize}!",
            (
                '"[It belongs to both of us|Half of it is yours]," said {h}. So they {joy} [until '
                'evening|all afternoon].'
            ),
            (
                "[{h} learned that it pays not to give up too soon|The best part was that they had "
                "found it together|They hid the map again for the next finder]."
            ),
        ],
    )


def race(s):
    first, day = opening(s, ["One day, ", "On Sunday, ", "One sunny morning, "])
    s.cast_member("f")
    s.cast_member(
        "o",
        kind=s.pick(
            [
                a
                for a in ("mouse", "turtle", "sparrow", "hedgehog", "duck", "mole")
                if a not in (s.vars["h_kind"], s.vars["f_kind"])
            ]
        ),
    )
    s.vars["prize"] = s.pick(["golden cup", "big cake", "blue ribbon", "basket of plums"])
    s.vars["hurt"] = s.pick(
        [
            "had a thorn in {o_his} foot",
            "had fallen into a ditch",
            "was stuck under a branch",
            "had lost the way",
        ]
    ).format(**s.vars)
    s.say(
        *first,
        day + "there was a race {at_place}. The winner would get a {prize}.",
        "{h} wanted to win, and so did {h_his} friend {f_the}."
    )
    s.say(
        '"[Ready, steady, go|One, two, three, go]!" called the judge, and everybody ran.',
        "{h} was [faster than the wind|very fast]. Soon {h_he} was [far ahead|in front of all the "
        "others].",
        "[The end of the race was already in sight|{h} could already see the ribbon at the end]. "
        "But then {h_he} heard someone crying {spot}.",
        "It was a little {o_kind} named {o}, who {hurt}.",
    )
    s.say(
        "{h} [looked at the end of the race, and then at {o}|stopped and thought for a moment].",
        '"[Wait, I will help you|Do not cry, I am here]," {h_he} said. {h_he} [helped {o} up|took '
        'care of {o}|made sure that {o} was well].',
        "Meanwhile, {f} ran past and won the race.",
    )
    close(
        s,
        [
            (
                '"[Why did you stop|What happened]?" asked {f}. "[You were the fastest|You were so '
                'far ahead]!" {o} told {f_him} everything.'
            ),
            (
                '"Then [this belongs to you|you should have it]," said {f}, and gave {h} the '
                '{prize}. [But {h} wanted to share it|In the end they shared it, all three of '
                'them|"Let us share it," said {h}].'
            ),
            (
                "[There are things more important than winning|{h} had lost the race and found a "
                "new friend|Everyone clapped for {h}]."
            ),
        ],
    )


def raft(s):
    first, day = opening(s)
    s.cast_member("f")
    s.vars["goal"] = s.pick(
        ["the little island", "the other side of the lake", "the old lighthouse"])
    s.vars["stuff"] = s.pick(
        [("old planks", "rope"), ("long branches", "strong grass"), ("empty barrels", "rope")]
    )
    s.vars["boards"], s.vars["bind"] = s.vars["stuff"]
    s.say(
        *first,
        day + "{h} stood by the water and looked at {goal}.",
        '"I [wish I could go there|want to see what is over there]," {h_he} said.',
        '"[Then let us build a raft|We could build a raft]," said {h_his} friend {f_the}.'
    )
    s.say(
        "They [collected|found] {boards}, and {h} tied them together with {bind}.",
        "{h} was in a hurry and made only [small|quick|loose] knots.",
        '"[Are those knots tight|Will that hold]?" asked {f}. "[It will do|Of course]," said {h}.',
        "But in the middle of the water the raft came apart, and with a splash they both fell in!",
    )
    s.say(
        "Wet and cold they [came back to the shore|reached the shore].",
        '"[I am sorry|It was my fault]," said {h}. "[I was in too much of a hurry|I did not listen'
        ' to you]."', '"[We will do it better|Let us try again]," said {f}.',
        "The next day they [tied every knot twice|checked every knot|took their time].",
        "This time the raft [was as strong as a ship|held together].",
    )
    close(
        s,
        [
            (
                "They crossed the water and came to {goal}. There they found [a tree full of ripe "
                "cherries|soft white sand|a family of friendly ducks|the best place for a picnic]."
            ),
            '"[Look how beautiful it is|It was worth the work]!" said {h}.',
            (
                "{h} learned that [good work takes time|it is wise to listen to a friend|a thing "
                "done well is worth the wait]."
            ),
        ],
    )


def fog(s):
    first, day = opening(s)
    s.cast_member("f")
    s.vars["who"] = s.pick(["mother", "father", "grandmother", "grandfather"])
    s.vars["signal"] = s.pick(["a bell", "a horn", "a drum", "a song"])
    s.say(
        *first,
        day + "{h} and {h_his} friend {f_the} went to {place} to pick [berries|flowers|mushrooms].",
        "They [went farther and farther|did not look at the time|talked and laughed] until their "
        "baskets were full.",
    )
    s.say(
        "Then a thick fog came [up|over the land]. Soon they could not see [the path|their own "
        "feet|anything].",
        '"[Which way is home|Where are we]?" asked {f}. "[I do not know|I am not sure]," said {h}.',
        "They walked and walked, but after a while they came to the same [stone|tree|fence] again.",
        '"[We are lost|We will never get home]!" said {f}, and {f_his} voice shook.',
    )
    s.say(
        '"[Let us stay calm|Let us be very quiet and listen]," said {h}. {h_he} [was afraid too, '
        'but {h_he} did not show it|took a deep breath].',
        "They stood still. And then, far away, they heard {signal}!",
        '"[That is my {who}|I know that sound]!" cried {h}. "[Come, this way|We only have to '
        'follow it]!"',
        "They held on to each other and followed the sound, step by step, until they saw the light "
        "of {h}'s house.",
    )
    close(
        s,
        [
            (
                "It was {h_his} {who}, who had waited at the door and made the sound again and "
                "again. Now there was [hot tea|hot soup|warm milk] for both of them."
            ),
            (
                "[After that, they never went so far without telling someone|{h} learned that in "
                "trouble it helps to stay calm]."
            ),
        ],
        "home",
    )
