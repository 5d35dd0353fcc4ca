// The layout of the segment that a weight socket and its attention sockets share: flags and rows
// lie inside it and do not overlap, and those that different threads write do not share a cache
// line.
#include "pipeline/stage/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <vector>

#include "model/synth/synth.h"

namespace larder::pipeline::inline stage {
namespace {

model::ModelConfig Config(size_t heads, size_t kv_heads, size_t head_size) {
  model::ModelShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  return model::ConfigOfShape(shape, "test");
}

struct Shape {
  size_t heads, kv_heads, head_size, rows, weight_threads, thread_heads;
  std::vector<size_t> attention_groups;
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.heads << " heads, " << s.kv_heads << " of KV, " << s.rows << " rows, "
       << s.weight_threads << " threads, " << s.attention_groups.size() << " attention sockets";
}

// One shape of each kind: more threads than heads, one thread, several sockets, a head size that is
// not a multiple of a cache line.
const std::vector<Shape> kShapes = {
    {24, 8, 128, 256, 6, 2, {4}},      {6, 2, 32, 1, 1, 2, {1}},     {4, 4, 64, 7, 3, 2, {1, 5, 2}},
    {32, 8, 128, 33, 47, 1, {16, 16}}, {9, 3, 64, 32, 2, 3, {2, 2}}, {14, 2, 40, 5, 4, 1, {3}}};

struct Memory {
  explicit Memory(size_t bytes)
      : size(bytes),
        data(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kPageBytes}))) {
    std::fill_n(data.get(), bytes, std::byte{0});
  }
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kPageBytes}); }
  };
  size_t size;
  std::unique_ptr<std::byte, Free> data;
};

struct Part {
  size_t begin, end;
  std::string name;
};

class ExchangeLayout : public testing::TestWithParam<Shape> {
 protected:
  const Shape& s() const { return GetParam(); }
  model::ModelConfig config() const { return Config(s().heads, s().kv_heads, s().head_size); }
  ExchangeShape shape() const {
    return {config(), s().rows, s().weight_threads, s().thread_heads, s().attention_groups};
  }

  // Calls `each` once for every flag. A weight thread's heads need not begin with the first one.
  static void ForEachFlag(const Shape& s, const Exchange& exchange, auto&& each) {
    for (size_t half = 0; half < kHalves; ++half) {
      for (size_t t = 0; t < s.weight_threads; ++t) {
        for (size_t head = t; head < t + s.thread_heads; ++head)
          each(exchange.projected(half, t, head));
      }
      for (size_t a = 0; a < s.attention_groups.size(); ++a) {
        for (size_t group = 0; group < s.attention_groups[a]; ++group)
          each(exchange.attended(half, AttentionId(static_cast<int32_t>(a)), group));
      }
    }
  }
};

TEST_P(ExchangeLayout, PartsLieInsideAndApart) {
  Memory memory(shape().bytes());
  const Exchange exchange(shape(), memory.data.get());
  std::vector<Part> parts;
  const auto add = [&](const void* begin, size_t bytes, const std::string& name) {
    const auto at = static_cast<size_t>(static_cast<const std::byte*>(begin) - memory.data.get());
    parts.push_back({at, at + bytes, name});
  };
  ForEachFlag(s(), exchange, [&](sync::EpochFlag* flag) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(flag) % kFalseSharingBytes, 0u);
    add(flag, sizeof(*flag), "flag");
  });
  size_t flags = s().weight_threads * s().thread_heads;
  for (const size_t n : s().attention_groups) flags += n;
  EXPECT_EQ(parts.size(), kHalves * flags);
  EXPECT_EQ(shape().flag_bytes(), parts.size() * sizeof(sync::EpochFlag));
  const weight_node::AttentionIoRows rows = exchange.rows();
  const size_t qkv_bytes = (s().heads + 2 * s().kv_heads) * s().head_size * sizeof(float);
  const size_t attn_bytes = s().heads * s().head_size * sizeof(float);
  EXPECT_GE(rows.qkv.stride_bytes(), qkv_bytes);
  EXPECT_GE(rows.attn.stride_bytes(), attn_bytes);
  for (size_t m = 0; m < s().rows; ++m) {
    add(rows.qkv.row(m), rows.qkv.stride_bytes(), "qkv");
    add(rows.attn.row(m), rows.attn.stride_bytes(), "attn");
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < parts.size(); ++i)
    ASSERT_LE(parts[i - 1].end, parts[i].begin) << parts[i - 1].name << " and " << parts[i].name;
  EXPECT_LE(parts.back().end, shape().bytes());
}

// Rows begin on a cache line and buffers on a page, so no page holds both flags and rows, which
// other threads write.
TEST_P(ExchangeLayout, RowsAreAligned) {
  Memory memory(shape().bytes());
  const weight_node::AttentionIoRows rows = Exchange(shape(), memory.data.get()).rows();
  EXPECT_EQ(shape().bytes() % kPageBytes, 0u);
  for (const weight_node::FloatRows& buffer : {rows.qkv, rows.attn}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % kPageBytes, 0u);
    EXPECT_EQ(buffer.stride_bytes() % kCacheLineBytes, 0u);
  }
}

// One side reads what the other has written, wherever each has mapped the memory: all addresses are
// offsets from its beginning.
TEST_P(ExchangeLayout, TheOtherSideFindsTheSameBytes) {
  Memory memory(shape().bytes()), elsewhere(shape().bytes());
  const Exchange writer(shape(), memory.data.get());
  uint32_t epoch = 0;
  ForEachFlag(s(), writer, [&](sync::EpochFlag* flag) {
    ASSERT_EQ(flag->Load(), 0u) << "zeroed memory is a new flag";
    flag->Signal(++epoch);
  });
  const auto value = [](size_t m, size_t i) { return static_cast<float>(m * 8191 + i); };
  const weight_node::AttentionIoRows written = writer.rows();
  for (size_t m = 0; m < s().rows; ++m) {
    for (size_t i = 0; i < written.qkv.stride; ++i) written.qkv.row(m)[i] = value(m, i);
    for (size_t i = 0; i < written.attn.stride; ++i) written.attn.row(m)[i] = -value(m, i) - 1;
  }
  std::copy_n(memory.data.get(), memory.size, elsewhere.data.get());
  const Exchange reader(shape(), elsewhere.data.get());
  uint32_t expected = 0, wrong = 0;
  ForEachFlag(s(), reader, [&](sync::EpochFlag* flag) { wrong += flag->Load() != ++expected; });
  const weight_node::AttentionIoRows read = reader.rows();
  for (size_t m = 0; m < s().rows; ++m) {
    for (size_t i = 0; i < read.qkv.stride; ++i) wrong += read.qkv.row(m)[i] != value(m, i);
    for (size_t i = 0; i < read.attn.stride; ++i) wrong += read.attn.row(m)[i] != -value(m, i) - 1;
  }
  EXPECT_EQ(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ExchangeLayout, testing::ValuesIn(kShapes));

TEST(FlagRefresh, IsDueBeforeAFlagGetsTooOldAndOnceEachTime) {
  FlagRefresh refresh;
  const uint32_t every = 1u << 28;
  EXPECT_FALSE(refresh.Due(0));
  EXPECT_FALSE(refresh.Due(every - 1));
  EXPECT_TRUE(refresh.Due(every + 5));
  EXPECT_FALSE(refresh.Due(every + 5));
  // Across the counter's wrap: the flag never gets older than EpochReached() can handle.
  uint32_t base = every + 5, last = base, age = 0;
  for (int i = 0; i < 100; ++i) {
    base += every / 3;
    if (refresh.Due(base)) last = base;
    age = std::max(age, base - last);
  }
  EXPECT_LT(age, every);
}

TEST(FrameMessage, HasRoomForAllRows) {
  for (const size_t max_batch_tokens : {1u, 7u, 8u, 32u, 256u}) {
    constexpr size_t kUpdates = 700;
    const size_t bytes = FrameMessage::Bytes(max_batch_tokens, kUpdates);
    EXPECT_EQ(bytes % kCacheLineBytes, 0u);
    Memory memory(bytes);
    auto* message = new (memory.data.get()) FrameMessage{};
    const auto* begin = memory.data.get();
    EXPECT_EQ(reinterpret_cast<std::byte*>(message->slot()) - begin, sizeof(FrameMessage));
    EXPECT_EQ(reinterpret_cast<std::byte*>(message->position(max_batch_tokens)),
              reinterpret_cast<std::byte*>(message->slot() + max_batch_tokens));
    EXPECT_EQ(message->position(max_batch_tokens) + max_batch_tokens,
              message->kept_row(max_batch_tokens));
    EXPECT_EQ(reinterpret_cast<std::byte*>(message->kept_row(max_batch_tokens) + max_batch_tokens),
              reinterpret_cast<std::byte*>(message->kv_update(max_batch_tokens)));
    EXPECT_LE(reinterpret_cast<std::byte*>(message->kv_update(max_batch_tokens) + kUpdates),
              begin + bytes);
  }
}

// The attention socket writes `pong` while other threads write the counters before it.
TEST(AttentionReport, ItsFlagHasLinesOfItsOwn) {
  EXPECT_EQ(offsetof(AttentionReport, pong) % kFalseSharingBytes, 0u);
  EXPECT_GE(offsetof(AttentionReport, pong), sizeof(SocketStatus));
  EXPECT_EQ(offsetof(AttentionReport, round_trip_ns) % kFalseSharingBytes, 0u);
  EXPECT_GE(offsetof(AttentionReport, round_trip_ns),
            offsetof(AttentionReport, pong) + sizeof(sync::EpochFlag));
}

}  // namespace
}  // namespace larder::pipeline::stage
