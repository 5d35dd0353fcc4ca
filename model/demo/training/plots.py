"""All plots, and who can be the hero of which."""
import plots_home as home
import plots_outside as outside

# plot -> what its hero may not be good at (it would have no problem), and kinds that its hero may
# not be
PLOTS = {
    outside.lost_thing: ((), ()),
    outside.stuck_high: (("fly", "climb"), ()),
    outside.sharing: ((), ()),
    outside.lost_little_one: ((), ()),
    outside.in_the_mud: (("push",), ("dog", "badger")),
    outside.rainy_picnic: ((), ()),
    outside.in_the_hole: (("squeeze", "dig", "swim"), ()),
    outside.treasure: ((), ()),
    outside.race: (("push",), ("turtle", "mole")),
    outside.raft: (("swim", "fly"), ("beaver",)),
    outside.fog: ((), ()),
    home.broken: ((), ()),
    home.afraid: ((), ()),
    home.baking: ((), ()),
    home.garden: ((), ()),
    home.practice: ((), ("frog",)),
    home.birthday: ((), ()),
    home.winter: ((), ()),
    home.gift: ((), ()),
    home.sleepless: ((), ()),
    home.neighbor: ((), ()),
}
