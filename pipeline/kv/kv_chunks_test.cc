// Chunks are handed out, shared, copied and given back: against sequences that each have a memory
// of their own.
#include "pipeline/kv/kv_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "pipeline/kv/kv_memory_testing.h"

namespace larder::pipeline::inline kv {
namespace {

KvChunksShape Shape(size_t slots, size_t chunks, size_t max_updates = 1000) {
  return {.capacity = {.slots = slots, .context = 100},
          .chunk_positions = 16,
          .slot_ends = {},
          .chunk_ends = {chunks},
          .max_updates = max_updates};
}

// Submits positions [begin, end) of the slot.
void Write(KvChunks& kv, SlotId slot, size_t begin, size_t end) {
  ASSERT_EQ(kv.Reserve(slot, begin, end), end);
  kv.Extend(slot, end);
}

TEST(KvChunks, SequencesTakeWhatTheyNeedAndGiveItBack) {
  KvChunks kv(Shape(4, 12));
  const AttentionId socket(0);
  EXPECT_EQ(kv.free(socket), 12u);
  Write(kv, SlotId(0), 0, 1);
  EXPECT_EQ(kv.free(socket), 11u);
  Write(kv, SlotId(0), 1, 16);
  EXPECT_EQ(kv.free(socket), 11u);
  Write(kv, SlotId(0), 16, 49);
  EXPECT_EQ(kv.free(socket), 8u);
  EXPECT_EQ(kv.own(SlotId(0)), 4u);
  Write(kv, SlotId(0), 20, 21);  // the end is written again
  EXPECT_EQ(kv.free(socket), 10u);
  EXPECT_EQ(kv.length(SlotId(0)), 21u);
  kv.Reset(SlotId(0));
  EXPECT_EQ(kv.free(socket), 12u);
  EXPECT_EQ(kv.length(SlotId(0)), 0u);
}

TEST(KvChunks, ReservingTwiceTakesNothingMore) {
  KvChunks kv(Shape(2, 14));
  ASSERT_EQ(kv.Reserve(SlotId(0), 0, 40), 40u);
  const size_t updates = kv.updates().size();
  ASSERT_EQ(kv.Reserve(SlotId(0), 0, 40), 40u);
  EXPECT_EQ(kv.updates().size(), updates);
  EXPECT_EQ(kv.free(AttentionId(0)), 11u);
}

TEST(KvChunks, ChunksForCopiesAndChunksThatAreHeld) {
  KvChunks kv(Shape(3, 14, 20));
  const AttentionId socket(0);
  Write(kv, SlotId(0), 0, 32);
  EXPECT_EQ(kv.Grow(SlotId(0), 4), 4u);
  EXPECT_EQ(kv.Grow(SlotId(0), 5), 5u);
  EXPECT_EQ(kv.length(SlotId(0)), 32u) << "until they are filled";
  EXPECT_EQ(kv.free(socket), 9u);
  kv.Extend(SlotId(0), 64);
  EXPECT_EQ(kv.Reserve(SlotId(0), 64, 80), 80u) << "in the chunk that was left over";
  EXPECT_EQ(kv.free(socket), 9u);
  EXPECT_EQ(kv.Grow(SlotId(1), 6), 5u) << "half of a micro-batch's updates are for its rows";
  kv.ClearUpdates();

  const KvPiece held = kv.PiecesAt(SlotId(0), 1).front();
  EXPECT_TRUE(kv.Hold(held));
  EXPECT_EQ(kv.shared(), 1u);
  kv.Reset(SlotId(0));
  kv.Reset(SlotId(1));
  EXPECT_EQ(kv.free(socket), 13u);
  kv.LetGo(held);
  EXPECT_EQ(kv.free(socket), 14u);
  EXPECT_EQ(kv.shared(), 0u);
}

TEST(KvChunks, SaysHowFarThereIsRoom) {
  KvChunks kv(Shape(2, 7));
  Write(kv, SlotId(0), 0, 80);
  EXPECT_EQ(kv.Reserve(SlotId(1), 0, 100), 32u);
  EXPECT_EQ(kv.free(AttentionId(0)), 0u);
  kv.Reset(SlotId(0));
  EXPECT_EQ(kv.Reserve(SlotId(1), 0, 100), 100u);
}

TEST(KvChunks, AForkSharesWholeChunksAndCopiesTheSeam) {
  KvChunks kv(Shape(3, 21));
  Write(kv, SlotId(0), 0, 50);
  kv.ClearUpdates();
  EXPECT_EQ(kv.Fork(SlotId(1), SlotId(0), 40), 40u);
  EXPECT_EQ(kv.free(AttentionId(0)), 21u - 4 - 1);
  EXPECT_EQ(kv.shared(), 2u);
  EXPECT_EQ(kv.own(SlotId(0)), 2u);
  ASSERT_EQ(kv.updates().size(), 3u);
  EXPECT_EQ(kv.updates()[0].copied_positions, 0u);
  EXPECT_EQ(kv.updates()[2].copied_positions, 8u);
  EXPECT_EQ(kv.Fork(SlotId(2), SlotId(0), 32), 32u);
  EXPECT_EQ(kv.free(AttentionId(0)), 21u - 4 - 1);
  // Written again from inside a shared chunk: in a copy.
  kv.ClearUpdates();
  Write(kv, SlotId(0), 20, 22);
  ASSERT_EQ(kv.updates().size(), 1u);
  EXPECT_EQ(kv.updates()[0].copied_positions, 4u);
  kv.Reset(SlotId(1));
  kv.Reset(SlotId(0));
  EXPECT_EQ(kv.shared(), 0u);
  kv.Reset(SlotId(2));
  EXPECT_EQ(kv.free(AttentionId(0)), 21u);
}

TEST(KvChunks, NothingIsSharedBetweenSockets) {
  KvChunksShape shape = Shape(4, 14);
  shape.slot_ends = {SlotId(1), SlotId(4)};
  shape.chunk_ends = {7, 20};
  KvChunks kv(shape);
  EXPECT_EQ(kv.free(AttentionId(0)), 7u);
  EXPECT_EQ(kv.free(AttentionId(1)), 13u);
  Write(kv, SlotId(0), 0, 50);
  Write(kv, SlotId(3), 0, 20);
  for (const model::KvUpdate& update : kv.updates())
    EXPECT_EQ(update.chunk < 7, update.slot == SlotId(0));
  EXPECT_EQ(kv.Fork(SlotId(1), SlotId(0), 40), 0u);
  EXPECT_EQ(kv.length(SlotId(1)), 0u);
  EXPECT_EQ(kv.Fork(SlotId(2), SlotId(3), 17), 17u);
}

TEST(KvChunks, AKeptSequenceHasNoSlot) {
  KvChunksShape shape = Shape(2, 14);
  shape.kept = 1;
  KvChunks kv(shape);
  const SlotId kept(2);
  Write(kv, SlotId(0), 0, 50);
  kv.ClearUpdates();
  kv.Keep(kept, SlotId(0));
  EXPECT_EQ(kv.length(SlotId(0)), 0u);
  EXPECT_EQ(kv.length(kept), 50u);
  EXPECT_EQ(kv.own(kept), 4u);
  EXPECT_TRUE(kv.updates().empty()) << "no socket knows of it";
  EXPECT_EQ(kv.Fork(SlotId(1), kept, 40), 40u);
  kv.ClearUpdates();
  EXPECT_TRUE(kv.Restore(SlotId(0), kept));
  EXPECT_EQ(kv.length(SlotId(0)), 50u);
  EXPECT_EQ(kv.length(kept), 0u);
  EXPECT_EQ(kv.updates().size(), 4u);
  EXPECT_EQ(kv.free(AttentionId(0)), 14u - 4 - 1);
}

TEST(KvChunks, AForkLeavesUpdatesForTheRows) {
  KvChunks kv(Shape(3, 21, 4));
  Write(kv, SlotId(0), 0, 64);
  kv.ClearUpdates();
  EXPECT_EQ(kv.Fork(SlotId(1), SlotId(0), 60), 32u) << "two of four updates";
  EXPECT_EQ(kv.Reserve(SlotId(1), 32, 64), 64u);
}

// Random sequences, cut, continued, forked, forgotten; each position has a value that only its own
// sequence could have written.
TEST(KvChunks, EverySequenceHasItsOwnValues) {
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return random() % n; };
  for (size_t round = 0; round < 60; ++round) {
    KvChunksShape shape = Shape(6, 0, 40);
    shape.slot_ends = {SlotId(4), SlotId(6)};
    shape.kept = 3;
    shape.chunk_ends = {7 + below(22), 0};
    shape.chunk_ends[1] = shape.chunk_ends[0] + 7 + below(8);
    KvChunks kv(shape);
    KvMemory memory(shape);
    std::vector<std::vector<uint64_t>> expected(shape.capacity.slots + shape.kept);
    uint64_t next = 1;
    for (size_t step = 0; step < 3000; ++step) {
      const SlotId slot(static_cast<int32_t>(below(shape.capacity.slots)));
      std::vector<uint64_t>& mine = expected[slot.index()];
      const size_t what = below(12);
      const SlotId kept(static_cast<int32_t>(shape.capacity.slots + below(shape.kept)));
      if (what == 0) {
        kv.Reset(slot);
        mine.clear();
      } else if (what == 10) {
        kv.Keep(kept, slot);
        expected[kept.index()] = std::exchange(mine, {});
      } else if (what == 11) {
        if (!kv.Restore(slot, kept)) continue;
        mine = std::exchange(expected[kept.index()], {});
      } else if (what < 3) {
        const SlotId from(static_cast<int32_t>(below(shape.capacity.slots + shape.kept)));
        if (from == slot) continue;
        const std::vector<uint64_t> theirs = expected[from.index()];
        const size_t positions = below(theirs.size() + 1), got = kv.Fork(slot, from, positions);
        ASSERT_LE(got, positions);
        mine.assign(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(got));
      } else {
        const size_t begin = below(4) == 0 ? below(mine.size() + 1) : mine.size();
        const size_t end =
            std::min(begin + 1 + below(below(3) == 0 ? 40 : 4), shape.capacity.context);
        const size_t room = kv.Reserve(slot, begin, end);
        mine.resize(begin);
        ASSERT_GE(room, begin);
        ASSERT_LE(room, end);
        if (room == begin) continue;
        kv.Extend(slot, room);
        for (size_t p = begin; p < room; ++p) mine.push_back(next++);
        memory.Apply(kv.updates());  // rows and the changes before them go together, as in a
                                     // micro-batch
        kv.ClearUpdates();
        for (size_t p = begin; p < room; ++p) memory.at(slot, p) = mine[p];
      }
      ASSERT_EQ(kv.length(slot), mine.size());
      if (step % 50 != 0) continue;
      memory.Apply(kv.updates());
      kv.ClearUpdates();
      for (SlotId id(0); id.index() < shape.capacity.slots; ++id) {
        for (size_t p = 0; p < expected[id.index()].size(); ++p)
          ASSERT_EQ(memory.at(id, p), expected[id.index()][p])
              << "slot " << id.value << " position " << p;
      }
    }
    kv.ResetAll();
    EXPECT_EQ(kv.free(AttentionId(0)), shape.chunk_ends[0]);
    EXPECT_EQ(kv.free(AttentionId(1)), shape.chunk_ends[1] - shape.chunk_ends[0]);
    EXPECT_EQ(kv.shared(), 0u);
  }
}

// Classes with windows: 100 positions in chunks of 16, micro-batches of at most 20 rows.
KvChunksShape WithWindows(std::vector<model::KvClass> classes, std::vector<size_t> pools,
                          size_t slots = 2) {
  KvChunksShape shape = Shape(slots, 0);
  shape.capacity.max_batch_tokens = 20;
  shape.chunk_ends.clear();
  for (const size_t chunks : pools)
    shape.chunk_ends.push_back(chunks + (shape.chunk_ends.empty() ? 0 : shape.chunk_ends.back()));
  shape.classes = std::move(classes);
  return shape;
}

TEST(KvChunks, WhatWindowsNoLongerSeeIsGivenAwayWhenItIsWanted) {
  KvChunks kv(WithWindows({{0, 0}, {10, 4}}, {14, 8}));
  const AttentionId socket(0);
  for (size_t begin = 0; begin < 100; begin += 20) Write(kv, SlotId(0), begin, begin + 20);
  EXPECT_EQ(kv.free(socket), 14u - 7);
  EXPECT_EQ(kv.Usable(SlotId(0), 30), 30u) << "nobody has wanted its chunks";
  EXPECT_FALSE(kv.Short(socket));
  for (size_t begin = 0; begin < 100; begin += 20) {
    EXPECT_FALSE(kv.Short(socket)) << "chunks of the first one are loose";
    Write(kv, SlotId(1), begin, begin + 20);
  }
  EXPECT_EQ(kv.length(SlotId(0)), 100u);
  EXPECT_EQ(kv.Usable(SlotId(0), 100), 100u);
  EXPECT_EQ(kv.Usable(SlotId(0), 90), 90u) << "rows of the last micro-batch may come again";
  EXPECT_EQ(kv.Usable(SlotId(0), 30), 0u);
  EXPECT_EQ(kv.Usable(SlotId(0), 0), 0u);
  kv.Reset(SlotId(0));
  kv.Reset(SlotId(1));
  EXPECT_EQ(kv.free(socket), 14u);
  for (const SlotId slot : {SlotId(0), SlotId(1)}) Write(kv, slot, 0, 20);
}

TEST(KvChunks, OneClassOfWindowsCountsWhatIsLoose) {
  KvChunks kv(WithWindows({{10, 4}}, {8}));
  const AttentionId socket(0);
  EXPECT_EQ(kv.most_chunks(), 4u);
  for (size_t begin = 0; begin < 100; begin += 20) Write(kv, SlotId(0), begin, begin + 20);
  // 100 - 20 rows - 9 that the first of them sees: chunk 4 and later ones are needed.
  EXPECT_EQ(kv.own(SlotId(0)), 7u);
  EXPECT_EQ(kv.free(socket), 1u + 4);
}

TEST(KvChunks, ASequenceNeedsTheChunksOfEachClass) {
  KvChunksShape shape{.capacity = {.slots = 2, .context = 95},
                      .chunk_positions = 10,
                      .slot_ends = {},
                      .chunk_ends = {},
                      .classes = {{}, {.window = 10, .chunks = 3}, {.chunks = 1, .states = true}},
                      .class_bytes = {100, 2000, 7}};
  EXPECT_EQ(shape.NeededBytes(0), 0u);
  EXPECT_EQ(shape.NeededBytes(1), 2107u);
  EXPECT_EQ(shape.NeededBytes(20), 4207u);
  EXPECT_EQ(shape.NeededBytes(41), 6507u);
  EXPECT_EQ(shape.NeededBytes(95), 7007u);
  EXPECT_EQ(shape.NeededBytes(200), 7007u) << "no more than a context";
  shape.class_bytes.clear();
  EXPECT_EQ(shape.NeededBytes(41), 9u) << "chunks of one size";
}

TEST(KvChunks, AForkBeginsWithWhatItsWindowsSee) {
  KvChunksShape shape = WithWindows({{0, 0}, {10, 4}}, {20, 10}, 3);
  KvChunks kv(shape);
  for (size_t begin = 0; begin < 80; begin += 20) Write(kv, SlotId(0), begin, begin + 20);
  kv.ClearUpdates();
  ASSERT_EQ(kv.Fork(SlotId(1), SlotId(0), 70), 70u);
  // Five chunks of the first class, of which the last is copied; of the other, [61, 70) is seen.
  EXPECT_EQ(kv.updates().size(), 5u + 2);
  EXPECT_EQ(kv.shared(), 4u + 1);
  Write(kv, SlotId(1), 70, 90);
  // Where too few are free for a copy, only whole chunks are shared.
  kv.Reset(SlotId(1));
  Write(kv, SlotId(2), 0, 20);
  while (!kv.Short(AttentionId(0)) && kv.length(SlotId(2)) < 100) {
    const size_t begin = kv.length(SlotId(2)), room = kv.Reserve(SlotId(2), begin, begin + 16);
    kv.Extend(SlotId(2), room);
  }
  EXPECT_LE(kv.Fork(SlotId(1), SlotId(0), 70), 70u);
}

// As EverySequenceHasItsOwnValues, with classes: the rows of a micro-batch find what they see.
TEST(KvChunks, RowsFindWhatTheirWindowsSee) {
  std::mt19937 random(6);
  const auto below = [&](size_t n) { return random() % n; };
  const std::vector<std::vector<model::KvClass>> all = {
      {{0, 0}, {1, 3}}, {{0, 0}, {17, 4}}, {{40, 5}}, {{0, 0}, {5, 4}, {33, 5}}, {{0, 0}, {90, 7}}};
  size_t gone = 0, forks = 0;
  for (size_t round = 0; round < 100; ++round) {
    KvChunksShape shape = WithWindows(all[round % all.size()], {}, 6);
    shape.slot_ends = {SlotId(4), SlotId(6)};
    shape.max_updates = 80;
    shape.kept = 3;
    const size_t classes = shape.classes.size();
    for (size_t i = 0; i < 2 * classes; ++i) {
      const size_t most = shape.classes[i % classes].chunks;
      shape.chunk_ends.push_back((i == 0 ? 0 : shape.chunk_ends.back()) +
                                 (most == 0 ? 7 + below(22) : most * (i < classes ? 4 : 2)));
    }
    KvChunks kv(shape);
    KvMemory memory(shape);
    std::vector<std::vector<uint64_t>> expected(shape.capacity.slots + shape.kept);
    uint64_t next = 1;
    for (size_t step = 0; step < 2000; ++step) {
      const SlotId slot(static_cast<int32_t>(below(shape.capacity.slots)));
      std::vector<uint64_t>& mine = expected[slot.index()];
      const SlotId kept(static_cast<int32_t>(shape.capacity.slots + below(shape.kept)));
      const size_t what = below(12);
      if (what == 0) {
        kv.Reset(slot);
        mine.clear();
      } else if (what == 10) {
        kv.Keep(kept, slot);
        expected[kept.index()] = std::exchange(mine, {});
      } else if (what == 11) {
        if (!kv.Restore(slot, kept)) continue;
        mine = std::exchange(expected[kept.index()], {});
      } else if (what < 3) {
        const SlotId from(static_cast<int32_t>(below(shape.capacity.slots + shape.kept)));
        if (from == slot) continue;
        const std::vector<uint64_t> theirs = expected[from.index()];
        const size_t positions = below(theirs.size() + 1), got = kv.Fork(slot, from, positions);
        ASSERT_LE(got, positions);
        forks += got > 0;
        mine.assign(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(got));
      } else {
        size_t begin = below(4) == 0 ? below(mine.size() + 1) : mine.size();
        gone += kv.Usable(slot, begin) < begin;
        begin = kv.Usable(slot, begin);
        const size_t end =
            std::min(begin + 1 + below(below(3) == 0 ? 20 : 4), shape.capacity.context);
        const size_t room = kv.Reserve(slot, begin, end);
        mine.resize(begin);
        ASSERT_GE(room, begin);
        if (room < end) {
          // A kept sequence gives up; the next micro-batch has room for updates.
          if (kv.Short(kv.socket_of(slot))) kv.Reset(kept), expected[kept.index()].clear();
        }
        memory.Apply(kv.updates());
        kv.ClearUpdates();
        if (room == begin) continue;
        kv.Extend(slot, room);
        for (size_t p = begin; p < room; ++p) mine.push_back(next++);
        for (size_t c = 0; c < classes; ++c) {
          const size_t window = shape.classes[c].window;
          for (size_t p = begin; p < room; ++p) memory.at(slot, p, c) = mine[p];
          for (size_t p = window == 0 || begin < window ? 0 : begin - window + 1; p < room; ++p)
            ASSERT_EQ(memory.at(slot, p, c), mine[p])
                << "round " << round << " step " << step << " class " << c << " position " << p
                << " of [" << begin << ", " << room << ") to " << end << " first "
                << kv.first(slot);
        }
      }
      ASSERT_EQ(kv.length(slot), mine.size());
    }
    kv.ResetAll();
    EXPECT_EQ(kv.shared(), 0u);
  }
  EXPECT_GT(gone, 30u);
  EXPECT_GT(forks, 1000u);
}

}  // namespace
}  // namespace larder::pipeline::kv
