"""The people, animals, things and places of the demo model's stories."""

GIRLS = """
Mira Tessa Nora Ida Lily Pia Wilma Hanna Rosa Ella Fay Anna Sara Zoe Alice Amy Beth Clara Emma Eva Grace
Greta Heidi Iris Jane Julia Kate Lena Lisa Lucy Luna Mary Maya Mia Molly Nina Olga Paula Ruby Sophie Stella
Vera
""".split()
BOYS = """
Tom Emil Oskar Finn Ben Leo Anton Milo Hugo Sami Otto Max Jack Tim Adam Alex Arthur Bruno Carl Daniel David
Eric Felix Fred George Henry Ivan Jacob James John Karl Lars Liam Luke Mark Noah Paul Peter Sam Simon Theo
Victor
""".split()
# Some names are made up from these, so that a name never seen before is still told on as it was
# given.
NAME_STARTS = "B Br D F Fl G H J K L M N P Qu R S T Tr V W Z".split()
NAME_MIDDLES = (
    "abb ad am ann arl avi ebb ed ell emb err ibb ig ill imm ind obb odd ogg oll omm ubb udd".split(
    ))
NAME_ENDS = "a i o y in el us ie et on".split()
FEMALE_PETS = [
    "Willow", "Hazel", "Clover", "Dot", "Poppy", "Minna", "Plum", "Tansy", "Bella", "Daisy"
]
MALE_PETS = ["Pip", "Bramble", "Rusty", "Moss", "Nib", "Tuck", "Bobo", "Fennel", "Oliver", "Teddy"]

# kind -> (home, favourite food, what it is good at)
ANIMALS = {
    "fox": ("a den under the old oak", "berries", "run"),
    "rabbit": ("a burrow at the edge of the meadow", "carrots", "run"),
    "bear": ("a warm cave on the hill", "honey", "push"),
    "mouse": ("a tiny house under the stairs", "cheese", "squeeze"),
    "squirrel": ("a hollow tree in the forest", "nuts", "climb"),
    "hedgehog": ("a nest of dry leaves", "apples", "dig"),
    "owl": ("the top of a tall pine tree", "seed cakes", "fly"),
    "frog": ("a green pond behind the mill", "plum jam", "swim"),
    "duck": ("the reeds beside the lake", "bread", "swim"),
    "badger": ("a deep hole below the hill", "mushroom soup", "dig"),
    "mole": ("a long tunnel under the garden", "turnips", "dig"),
    "otter": ("a small house by the river", "fish", "swim"),
    "goat": ("a red barn on the farm", "fresh grass", "push"),
    "cat": ("a little house with a blue door", "fish pie", "climb"),
    "dog": ("a wooden house in the yard", "biscuits", "run"),
    "turtle": ("the sunny side of the pond", "lettuce", "swim"),
    "beaver": ("a house of sticks in the river", "crunchy roots", "push"),
    "sparrow": ("a round nest in the apple tree", "crumbs", "fly"),
    "crow": ("a tall tower in the village", "corn", "fly"),
}
CHILD_HOMES = [
    "a small house by the river",
    "a yellow house near the sea",
    "a little village on a hill",
    "a tall house in a busy town",
    "a farm with many animals",
    "a cottage at the edge of the " "forest",
]
CHILD_FOODS = ["pancakes", "apple pie", "noodle soup", "warm bread", "strawberries", "honey cake"]

GOOD_TRAITS = [
    "kind",
    "curious",
    "brave",
    "cheerful",
    "clever",
    "gentle",
    "quiet",
    "happy",
    "friendly",
    "busy",
]

# place -> (how one gets there, spots where a thing may hide)
PLACES = {
    "the forest": [
        "under a fallen log",
        "behind a mossy rock",
        "in a heap of dry leaves",
        "between the " "roots of an old " "oak",
    ],
    "the garden": [
        "behind the watering can",
        "under the rose bush",
        "between the cabbages",
        "next to the " "garden gate",
    ],
    "the meadow": [
        "in the tall grass",
        "under a big leaf",
        "beside an old fence",
        "among the yellow flowers",
    ],
    "the beach": [
        "behind a grey rock",
        "under a heap of seaweed",
        "inside an old boat",
        "beside a pool of " "salt water",
    ],
    "the park": [
        "under the wooden bench", "behind the fountain", "near the swings", "beside the duck pond"
    ],
    "the hill": [
        "behind a round stone", "under a thorn bush", "beside the old wall", "in a small hollow"
    ],
    "the farm": ["in the hay", "behind the barn", "under the cart", "beside the well"],
}

# A thing a small person can carry, lose, share, break or give.
COLOURS = ["red", "blue", "green", "yellow", "purple", "orange", "white", "silver"]
TOYS = [
    "ball",
    "kite",
    "drum",
    "boat",
    "scarf",
    "lantern",
    "whistle",
    "toy train",
    "hat",
    "bucket",
    "spinning top",
    "umbrella",
]
FRAGILE = ["cup", "bowl", "lamp", "vase", "plate", "clay pot", "snow globe", "music box"]
FLYING = ["kite", "balloon", "hat", "scarf"]
SEEDS = ["sunflower", "pumpkin", "bean", "tomato", "tulip", "carrot"]
DISHES = [
    ("a berry pie", "berries"),
    ("a pot of soup", "carrots"),
    ("a honey cake", "honey"),
    ("a loaf of bread", "flour"),
    ("an apple cake", "apples"),
    ("a plate of pancakes", "eggs"),
    ("a bowl of pudding", "milk"),
    ("a nut cake", "nuts"),
]
SKILLS = [
    ("swim", "by the lake", "sank like a stone"),
    ("whistle", "in the garden", "made only a wet hiss"),
    ("walk on stilts", "in the park", "fell over backwards"),
    ("juggle", "in the park", "dropped every " "ball"),
    ("dance", "in the meadow", "tripped over a root"),
    ("ride a bike", "on the road", "tipped over " "into the grass"),
    ("skip stones", "by the river", "only made a big splash"),
    ("play the flute", "on the hill", "made a noise like an angry goose"),
    ("jump over the stream", "in the meadow", "landed in the cold water"),
    ("climb the rope", "in the barn", "slid to the floor"),
]
