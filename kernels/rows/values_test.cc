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

std::string CheckText(Isa isa, ValuesFn values, const ValuesShape& shape, size_t positions) {
  try {
    CheckValues(isa, values, shape, positions);
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
        const ValuesShape shape = {.blocks = blocks,
                                   .queries = queries,
                                   .w_stride = 80,
                                   .o_stride = blocks * kBlock + queries % 3 * 5};
        const ValuesFn values = MakeValues(isa, shape, DefaultTuning(isa).attention);
        for (const size_t positions : {0, 1, 15, 16, 17, 33, 80}) {
          ASSERT_EQ(CheckText(isa, values, shape, positions), "")
              << IsaName(isa) << " blocks " << blocks << " queries " << queries << " positions "
              << positions;
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
        const ValuesShape shape = {.blocks = blocks,
                                   .queries = tuning.value_queries,
                                   .w_stride = 48,
                                   .o_stride = blocks * kBlock};
        ASSERT_EQ(CheckText(isa, MakeValues(isa, shape, tuning), shape, 33), "")
            << IsaName(isa) << ", " << sums << " sums, " << blocks << " blocks";
      }
    }
  }
}

TEST(Values, EveryQueryHasASum) {
  for (const Isa isa : kIsas) {
    const AttentionTuning tuning = DefaultTuning(isa).attention;
    EXPECT_GE(tuning.value_queries, 4u);  // for heads of any size
    EXPECT_LE(tuning.value_queries, tuning.value_sums);
  }
  AttentionTuning tuning = DefaultTuning(Isa::kScalar).attention;
  tuning.value_queries = tuning.value_sums + 1;
  EXPECT_THROW(
      MakeValues(Isa::kScalar, {.blocks = 1, .queries = 1, .w_stride = 16, .o_stride = 32}, tuning),
      Error);
}

// The reference itself, on exact values: position t of block b holds t + b, scale 0.5, weight 2.
TEST(Values, WeightedSum) {
  const size_t blocks = 2, positions = 20, padded = 32;
  const ValuePage layout{blocks};
  std::vector<uint8_t> pages(2 * layout.bytes());
  for (size_t t = 0; t < padded; ++t) {
    uint8_t* page = pages.data() + t / kPagePositions * layout.bytes();
    for (size_t b = 0; b < blocks; ++b) {
      const uint16_t half = model::F32ToF16(0.5f);
      std::memcpy(page + layout.scale_offset(b, t % kPagePositions), &half, 2);
      std::memset(page + layout.value_offset(t % kPagePositions) + b * kBlock,
                  static_cast<int>(t + b), kBlock);
    }
  }
  const std::vector<float> p(padded, 2.0f);
  std::vector<float> w(blocks * padded), o(blocks * kBlock);
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) continue;
    GetElementwise(isa).scale_weights(p.data(), pages.data(), w.data(), blocks, padded, padded, 1);
    const ValuesShape shape = {
        .blocks = blocks, .queries = 1, .w_stride = padded, .o_stride = o.size()};
    MakeValues(isa, shape, DefaultTuning(isa).attention)(pages.data(), w.data(), o.data(),
                                                         positions, pages.data(), pages.data());
    for (size_t i = 0; i < o.size(); ++i)
      EXPECT_EQ(o[i], i < kBlock ? 190.0f : 210.0f) << IsaName(isa) << i;
  }
}

// An error in the last column, or a write past the row, must be detected.
TEST(Values, CheckNoticesABrokenKernel) {
  static constexpr ValuesShape kShape = {.blocks = 2, .queries = 2, .w_stride = 32, .o_stride = 70};
  const ValuesFn off_by_one = [](const uint8_t* pages, const float* w, float* o, size_t positions,
                                 const uint8_t*, const uint8_t*) {
    ValuesReference(kShape, pages, w, o, positions - 1);
  };
  const ValuesFn negated = [](const uint8_t* pages, const float* w, float* o, size_t positions,
                              const uint8_t*, const uint8_t*) {
    ValuesReference(kShape, pages, w, o, positions);
    o[70 + 63] = -o[70 + 63];
  };
  const ValuesFn beyond = [](const uint8_t* pages, const float* w, float* o, size_t positions,
                             const uint8_t*, const uint8_t*) {
    ValuesReference(kShape, pages, w, o, positions);
    o[64] = 0;
  };
  for (const ValuesFn broken : {off_by_one, negated, beyond}) {
    EXPECT_NE(CheckText(Isa::kScalar, broken, kShape, 20), "");
  }
}

}  // namespace
}  // namespace larder::kernels::rows
