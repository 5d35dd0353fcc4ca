// What KvStates hands out, with a number for what a state has seen: every sequence goes on from
// what it has computed, whoever shares what with whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "pipeline/kv/kv_chunks.h"

namespace larder::pipeline::inline kv {
namespace {

KvChunksShape WithStates(size_t slots, size_t kept_states, size_t kept = 3) {
  return {.capacity = {.slots = slots, .context = 400, .max_batch_tokens = 16},
          .chunk_positions = 4,
          .slot_ends = {},
          .chunk_ends = {slots * 100, slots * 100 + slots + kept_states},
          .max_updates = 1000,
          .kept = kept,
          .classes = {{}, {.chunks = 1, .states = true}}};
}

// The slot's next n tokens.
void Go(KvChunks& kv, SlotId slot, size_t begin, size_t n) {
  ASSERT_EQ(kv.Reserve(slot, begin, begin + n), begin + n);
  kv.Extend(slot, begin + n);
  kv.ClearUpdates();
}

TEST(KvStates, ASequenceGoesOnWhereItHasAState) {
  KvChunks kv(WithStates(2, 4));
  Go(kv, SlotId(0), 0, 10);
  EXPECT_EQ(kv.Usable(SlotId(0), 10), 10u);
  EXPECT_EQ(kv.Usable(SlotId(0), 9), 0u);
  kv.KeepState(SlotId(0));
  Go(kv, SlotId(0), 10, 6);
  Go(kv, SlotId(0), 16, 4);
  EXPECT_EQ(kv.kept_states(), 1u);
  EXPECT_EQ(kv.Usable(SlotId(0), 20), 20u);
  EXPECT_EQ(kv.Usable(SlotId(0), 19), 10u);
  EXPECT_EQ(kv.Fork(SlotId(1), SlotId(0), 18), 10u);
  EXPECT_EQ(kv.length(SlotId(1)), 10u);
  Go(kv, SlotId(1), 10, 5);
  EXPECT_EQ(kv.Usable(SlotId(0), 12), 10u) << "it was copied";
  kv.Shorten(SlotId(0), 10);
  EXPECT_EQ(kv.length(SlotId(0)), 10u);
  kv.Reset(SlotId(0));
  EXPECT_EQ(kv.Usable(SlotId(1), 12), 10u) << "both had it";
}

TEST(KvStates, ThoseUnusedForLongestAreGivenUp) {
  KvChunks kv(WithStates(2, 2));
  Go(kv, SlotId(0), 0, 10);
  for (size_t i = 1; i < 4; ++i) {
    kv.KeepState(SlotId(0));
    Go(kv, SlotId(0), 10 * i, 10);
  }
  // Of the three kept, the other slot's place is still free.
  EXPECT_EQ(kv.Usable(SlotId(0), 10), 10u);
  Go(kv, SlotId(1), 0, 5);
  EXPECT_EQ(kv.Usable(SlotId(0), 10), 0u);
  EXPECT_EQ(kv.Usable(SlotId(0), 20), 20u);
  EXPECT_EQ(kv.Fork(SlotId(1), SlotId(0), 20), 20u);
  Go(kv, SlotId(1), 20, 1);
  kv.KeepState(SlotId(0));
  Go(kv, SlotId(0), 40, 1);
  EXPECT_EQ(kv.Usable(SlotId(0), 39), 20u) << "30 is older";
  EXPECT_EQ(kv.kept_states(), 2u);
}

TEST(KvStates, SomeStayUntilTheNextOne) {
  KvChunks kv(WithStates(1, 6));
  Go(kv, SlotId(0), 0, 10);
  kv.KeepStateUntilNext(SlotId(0));
  Go(kv, SlotId(0), 10, 10);
  EXPECT_EQ(kv.Usable(SlotId(0), 19), 10u);
  kv.KeepStateUntilNext(SlotId(0));
  Go(kv, SlotId(0), 20, 10);
  EXPECT_EQ(kv.Usable(SlotId(0), 19), 0u);
  EXPECT_EQ(kv.Usable(SlotId(0), 29), 20u);
  kv.KeepState(SlotId(0));
  Go(kv, SlotId(0), 30, 10);
  EXPECT_EQ(kv.Usable(SlotId(0), 29), 20u);
  kv.KeepStateUntilNext(SlotId(0));
  Go(kv, SlotId(0), 40, 10);
  EXPECT_EQ(kv.Usable(SlotId(0), 49), 40u);
  EXPECT_EQ(kv.Usable(SlotId(0), 39), 30u);
  EXPECT_EQ(kv.Usable(SlotId(0), 29), 0u);
  EXPECT_EQ(kv.kept_states(), 2u);
  // Gone on from in place it is the sequence's end, and may be kept for long.
  kv.Shorten(SlotId(0), 40);
  Go(kv, SlotId(0), 40, 5);
  kv.KeepState(SlotId(0));
  Go(kv, SlotId(0), 45, 5);
  kv.KeepStateUntilNext(SlotId(0));
  Go(kv, SlotId(0), 50, 5);
  EXPECT_EQ(kv.Usable(SlotId(0), 49), 45u);
}

TEST(KvStates, SequencesWithMostGiveTheirsUp) {
  KvChunks kv(WithStates(2, 3));
  const SlotId other(2);
  Go(kv, SlotId(0), 0, 10);
  kv.Keep(other, SlotId(0));
  Go(kv, SlotId(0), 0, 10);
  for (size_t i = 1; i < 3; ++i) {
    kv.KeepState(SlotId(0));
    Go(kv, SlotId(0), 10 * i, 10);
  }
  Go(kv, SlotId(1), 0, 5);
  const auto go_on = [&](size_t begin) {
    kv.KeepState(SlotId(1));
    Go(kv, SlotId(1), begin, 5);
    EXPECT_EQ(kv.Usable(other, 10), 10u) << "its only one, and the oldest";
  };
  go_on(5);
  EXPECT_EQ(kv.Usable(SlotId(0), 19), 0u);
  EXPECT_EQ(kv.Usable(SlotId(0), 29), 20u);
  go_on(10);
  EXPECT_EQ(kv.Usable(SlotId(0), 29), 0u) << "older than those of the other slot";
  go_on(15);
  EXPECT_EQ(kv.Usable(SlotId(1), 9), 0u);
  EXPECT_EQ(kv.Usable(SlotId(1), 19), 15u);
}

TEST(KvStates, WithoutRoomNothingIsKept) {
  KvChunks kv(WithStates(1, 0));
  Go(kv, SlotId(0), 0, 10);
  kv.KeepState(SlotId(0));
  Go(kv, SlotId(0), 10, 10);
  EXPECT_EQ(kv.Usable(SlotId(0), 19), 0u);
  EXPECT_EQ(kv.Usable(SlotId(0), 20), 20u);
  EXPECT_EQ(kv.kept_states(), 0u);
}

TEST(KvStates, ALongSequenceKeepsTheLatest) {
  KvChunks kv(WithStates(1, 40));
  Go(kv, SlotId(0), 0, 10);
  for (size_t i = 1; i < 39; ++i) {
    kv.KeepState(SlotId(0));
    Go(kv, SlotId(0), 10 * i, 10);
  }
  EXPECT_EQ(kv.Usable(SlotId(0), 389), 380u);
  EXPECT_EQ(kv.Usable(SlotId(0), 249), 240u);
  EXPECT_EQ(kv.Usable(SlotId(0), 239), 0u);
}

TEST(KvStates, EverySequenceGoesOnFromWhatItHasSeen) {
  std::mt19937 random(4);
  const auto below = [&](size_t n) { return random() % n; };
  size_t forks = 0, rewound = 0, restored = 0;
  for (size_t round = 0; round < 100; ++round) {
    KvChunksShape shape = WithStates(5, 0);
    shape.slot_ends = {SlotId(3), SlotId(5)};
    const size_t kept_states[] = {below(6), below(3)};
    shape.chunk_ends = {100, 103 + kept_states[0], 203 + kept_states[0],
                        205 + kept_states[0] + kept_states[1]};
    KvChunks kv(shape);
    std::vector<std::vector<uint64_t>> chunks(shape.chunk_ends.back());
    std::vector<uint32_t> table(5, UINT32_MAX);
    std::vector<std::vector<uint64_t>> expected(5 + shape.kept);
    uint64_t next = 1;
    for (size_t step = 0; step < 3000; ++step) {
      const SlotId slot(static_cast<int32_t>(below(5)));
      const SlotId kept(static_cast<int32_t>(5 + below(shape.kept)));
      std::vector<uint64_t>& mine = expected[slot.index()];
      const size_t what = below(14);
      if (what == 0) {
        kv.Reset(slot);
        mine.clear();
      } else if (what == 1) {
        kv.Keep(kept, slot);
        expected[kept.index()] = std::exchange(mine, {});
      } else if (what == 2) {
        if (!kv.Restore(slot, kept)) continue;
        restored += !expected[kept.index()].empty();
        mine = std::exchange(expected[kept.index()], {});
        // Without a slot its end is as loose as other states.
        mine.resize(kv.Usable(slot, mine.size()));
        kv.Shorten(slot, mine.size());
      } else if (what < 5) {
        const SlotId from(static_cast<int32_t>(below(5 + shape.kept)));
        if (from == slot) continue;
        const std::vector<uint64_t> theirs = expected[from.index()];
        const size_t got = kv.Fork(slot, from, below(theirs.size() + 1));
        forks += got > 0;
        mine.assign(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(got));
      } else if (what < 7) {
        what == 5 ? kv.KeepState(slot) : kv.KeepStateUntilNext(slot);
      } else {
        const size_t wanted = below(4) == 0 ? below(mine.size() + 1) : mine.size();
        const size_t begin = kv.Usable(slot, wanted);
        rewound += begin > 0 && begin < mine.size();
        const size_t end = std::min(begin + 1 + below(9), shape.capacity.context);
        const size_t room = kv.Reserve(slot, begin, end);
        ASSERT_EQ(kv.Reserve(slot, begin, end), room) << "asked twice";
        mine.resize(begin);
        if (room < end) kv.Reset(kept), expected[kept.index()].clear();
        for (const model::KvUpdate& update : kv.updates()) {
          const bool of_states = update.chunk >= 100 && (update.chunk < 103 + kept_states[0] ||
                                                         update.chunk >= 203 + kept_states[0]);
          if (!of_states) continue;
          table[update.slot.index()] = update.chunk;
          ASSERT_EQ(update.chunk < 203, update.slot.index() < 3) << "of the slot's socket";
          if (update.copied_positions > 0) chunks[update.chunk] = chunks[update.copied_from];
        }
        kv.ClearUpdates();
        if (room == begin) continue;
        kv.Extend(slot, room);
        std::vector<uint64_t>& state = chunks.at(table[slot.index()]);
        if (begin == 0) state.clear();
        ASSERT_EQ(state, mine) << "round " << round << " step " << step << " at " << begin;
        for (size_t p = begin; p < room; ++p) mine.push_back(next++);
        state = mine;
      }
      ASSERT_EQ(kv.length(slot), mine.size());
      ASSERT_EQ(kv.Usable(slot, mine.size()), mine.size()) << "the end of a slot's sequence stays";
    }
    kv.ResetAll();
    EXPECT_EQ(kv.kept_states(), 0u);
  }
  EXPECT_GT(forks, 1000u);
  EXPECT_GT(rewound, 1000u);
  EXPECT_GT(restored, 300u);
}

}  // namespace
}  // namespace larder::pipeline::kv
