#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/elementwise_sets.h"
#include "model/gguf/formats.h"

namespace larder::kernels::inline rows {
namespace {

constexpr Isa kIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni};

std::string CheckText(Isa isa, ValuesFn values, const ValuesShape& shape, size_t n_pages) {
  try {
    CheckValues(isa, values, shape, n_pages);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Values, SameBitsAsReference) {
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) {
      std::printf("skipped: this host lacks %s\n", std::string(IsaName(isa)).c_str());
      continue;
    }
    for (const size_t blocks : {1, 2, 3, 4, 8}) {
      for (size_t queries = 1; queries <= DefaultTuning(isa).attention.value_queries; ++queries) {
        const ValuesShape shape = {
            .blocks = blocks, .queries = queries, .o_stride = blocks * kBlock + queries % 3 * 5};
        const ValuesFn values = MakeValues(isa, shape, DefaultTuning(isa).attention);
        for (const size_t n_pages : {0, 1, 2, 8}) {
          ASSERT_EQ(CheckText(isa, values, shape, n_pages), "")
              << IsaName(isa) << " blocks " << blocks << " queries " << queries << " pages "
              << n_pages;
        }
      }
    }
  }
}

TEST(Values, OtherPassesGiveTheSameBits) {
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) continue;
    for (const size_t sums : {1, 2, 5, 30}) {
      AttentionTuning tuning = DefaultTuning(isa).attention;
      tuning.value_sums = sums;
      tuning.value_queries = std::min<size_t>(sums, 4);
      for (const size_t blocks : {1, 3, 8}) {
        const ValuesShape shape = {
            .blocks = blocks, .queries = tuning.value_queries, .o_stride = blocks * kBlock};
        ASSERT_EQ(CheckText(isa, MakeValues(isa, shape, tuning), shape, 2), "")
            << IsaName(isa) << ", " << sums << " sums, " << blocks << " blocks";
      }
    }
  }
}

TEST(Values, EveryQueryHasASum) {
  for (const Isa isa : kIsas) {
    const AttentionTuning tuning = DefaultTuning(isa).attention;
    EXPECT_GE(tuning.value_queries, 2u);  // for heads of any size
    EXPECT_LE(tuning.value_queries, tuning.value_sums);
  }
  AttentionTuning tuning = DefaultTuning(Isa::kScalar).attention;
  tuning.value_queries = tuning.value_sums + 1;
  EXPECT_THROW(MakeValues(Isa::kScalar, {.blocks = 1, .queries = 1, .o_stride = 32}, tuning),
               Error);
}

// The reference itself, on exact values: element i of position t is t + i, scale 0.5, weights 2
// and, where t is even, 510 (255 times as large): rounded exactly.
TEST(Values, WeightedSum) {
  const size_t blocks = 2, pages = 2, positions = pages * kValuePagePositions;
  const ValuePage layout{blocks};
  std::vector<uint8_t> values(pages * layout.bytes());
  std::vector<float> p(positions), o(blocks * kBlock), expected(o.size());
  for (size_t t = 0; t < positions; ++t) {
    std::vector<int8_t> value(o.size());
    p[t] = t % 2 == 0 ? 510.0f : 2.0f;
    for (size_t i = 0; i < value.size(); ++i) {
      value[i] = static_cast<int8_t>(t + i);
      expected[i] += p[t] * 0.5f * static_cast<float>(t + i);
    }
    PackValue(layout, value.data(), model::F32ToF16(0.5f), t % kValuePagePositions,
              values.data() + t / kValuePagePositions * layout.bytes());
  }
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) continue;
    ChunkWeights w;
    GetElementwise(isa).quantize_weights(p.data(), positions, values.data(), layout.bytes(), &w,
                                         pages, 1);
    EXPECT_EQ(w.q[0], 255);
    EXPECT_EQ(w.q[1], 1);
    const ValuesShape shape = {.blocks = blocks, .queries = 1, .o_stride = o.size()};
    MakeValues(isa, shape, DefaultTuning(isa).attention)(values.data(), &w, o.data(), pages,
                                                         values.data(), values.data());
    for (size_t i = 0; i < o.size(); ++i)
      EXPECT_FLOAT_EQ(o[i], expected[i]) << IsaName(isa) << " " << i;
  }
}

// Positions that no value was written to have weight 0, whatever their scales are.
TEST(Values, WeightsOfNothingAreZero) {
  std::vector<uint8_t> page(ValuePage{1}.bytes(), 0xFF);  // NaN
  const uint16_t one = model::F32ToF16(1.0f);
  std::memcpy(&page[ValuePage::scale_offset(0)], &one, sizeof(one));
  std::vector<float> p(kValuePagePositions, 0.0f);
  p[0] = 1;
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) continue;
    ChunkWeights w;
    GetElementwise(isa).quantize_weights(p.data(), p.size(), page.data(), page.size(), &w, 1, 1);
    EXPECT_EQ(w.q[0], 255);
    for (size_t t = 1; t < kValuePagePositions; ++t) EXPECT_EQ(w.q[t], 0) << IsaName(isa) << t;
    EXPECT_FLOAT_EQ(w.d[0] * 255, 1);
  }
}

// An error in the last column, or a write past the row, must be detected.
TEST(Values, CheckNoticesABrokenKernel) {
  static constexpr ValuesShape kShape = {.blocks = 2, .queries = 2, .o_stride = 70};
  const ValuesFn off_by_one = [](const uint8_t* pages, const ChunkWeights* w, float* o,
                                 size_t n_pages, const uint8_t*, const uint8_t*) {
    ValuesReference(kShape, pages, w, o, n_pages - 1);
  };
  const ValuesFn negated = [](const uint8_t* pages, const ChunkWeights* w, float* o, size_t n_pages,
                              const uint8_t*, const uint8_t*) {
    ValuesReference(kShape, pages, w, o, n_pages);
    o[70 + 63] = -o[70 + 63];
  };
  const ValuesFn beyond = [](const uint8_t* pages, const ChunkWeights* w, float* o, size_t n_pages,
                             const uint8_t*, const uint8_t*) {
    ValuesReference(kShape, pages, w, o, n_pages);
    o[64] = 0;
  };
  for (const ValuesFn broken : {off_by_one, negated, beyond}) {
    EXPECT_NE(CheckText(Isa::kScalar, broken, kShape, 2), "");
  }
}

}  // namespace
}  // namespace larder::kernels::rows
