// Matrix products: every instruction set of this host against the scalar reference, bit for bit, on
// shapes that are not multiples of any tile.
#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/formats/panel_format.h"
#include "kernels/rows/elementwise.h"
#include "model/gguf/formats.h"

namespace larder::kernels::inline gemm {
namespace {

struct AlignedBytes {
  explicit AlignedBytes(size_t n)
      : data(static_cast<uint8_t*>(std::aligned_alloc(64, RoundUp(n, 64)))) {
    std::memset(data, 0, n);
  }
  ~AlignedBytes() { std::free(data); }
  AlignedBytes(AlignedBytes&& other) noexcept : data(std::exchange(other.data, nullptr)) {}
  AlignedBytes& operator=(AlignedBytes&&) = delete;
  uint8_t* data;
};

// A matrix of n_panels * 16 rows without the last 3, of normally distributed values as Q8_0, and
// its panels.
struct Matrix {
  Matrix(size_t n_blocks, size_t n_panels, uint32_t seed)
      : blocks(n_blocks),
        rows(n_panels * kPanelRows - 3),
        packed(n_panels * kQ8Panel.bytes(n_blocks)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(rows * blocks * kBlock);
    for (float& v : values) v = normal(random);
    quantised.resize(rows * blocks);
    model::QuantizeQ8_0(values, quantised.data());
    for (size_t p = 0; p < n_panels; ++p) {
      const void* at[kPanelRows];
      for (size_t r = 0; r < kPanelRows; ++r) {
        const size_t row = p * kPanelRows + r;
        at[r] = row < rows ? &quantised[row * blocks] : nullptr;
      }
      kQ8Panel.pack(at, blocks, packed.data + p * kQ8Panel.bytes(blocks));
    }
  }
  size_t blocks, rows;
  std::vector<float> values;
  std::vector<model::Q8Block> quantised;
  AlignedBytes packed;
};

// n_panels panels of random weights.
AlignedBytes RandomPanels(const PanelShape& shape, size_t n_panels) {
  AlignedBytes panels(n_panels * shape.bytes());
  std::minstd_rand random(static_cast<unsigned>(shape.blocks * 10 + n_panels));
  std::vector<uint8_t> rows(kPanelRows * shape.row_bytes());
  for (size_t p = 0; p < n_panels; ++p) {
    const void* at[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) {
      at[r] = &rows[r * shape.row_bytes()];
      FillRandomRow(shape, random, &rows[r * shape.row_bytes()]);
    }
    shape.format.pack(at, shape.blocks, panels.data + p * shape.bytes());
  }
  return panels;
}

// Products of 1 to 130 rows, replacing and accumulating, of adjacent rows and of a list in which
// rows come in any order and again, with the tiles of `tuning`.
void ExpectReference(Isa isa, const KernelTuning& tuning, size_t blocks, size_t n_panels,
                     const PanelFormat& format = kQ8Panel) {
  const AlignedBytes panels = RandomPanels({blocks, format}, n_panels);
  std::mt19937 random(static_cast<unsigned>(blocks * 10 + n_panels));
  std::normal_distribution<float> normal;
  std::vector<float> values(blocks * kBlock);
  for (float& v : values) v = normal(random);
  for (const auto& [accumulate, listed] :
       {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    const GemmShape shape{{blocks, format},
                          ActRowBytes(blocks),
                          (n_panels * kPanelRows + 16) * sizeof(float),
                          accumulate,
                          listed};
    const Gemm gemm = Gemm::Make(isa, shape, tuning);
    // The reference takes its time: the most rows with a few blocks only.
    const size_t most_rows = blocks == 5 ? 130 : 33;
    AlignedBytes x(most_rows * shape.x_stride_bytes);
    for (size_t i = 0; i < most_rows; ++i) {
      std::vector<float> row = values;
      for (float& v : row) v *= static_cast<float>(i) - 6.5f;
      GetElementwise(Isa::kScalar)
          .quantize(row.data(), reinterpret_cast<ActBlock*>(x.data + i * shape.x_stride_bytes),
                    row.size());
    }
    const auto* acts = reinterpret_cast<const ActBlock*>(x.data);
    const size_t row_floats = shape.y_stride_bytes / sizeof(float);
    constexpr float kBefore = -0.75f;
    std::vector<float> reference(most_rows * row_floats, kBefore);
    GemmReference(shape, panels.data, acts, reference.data(), n_panels, most_rows);
    std::vector<uint32_t> rows(most_rows);
    for (size_t i = 0; i < most_rows; ++i)
      rows[i] = static_cast<uint32_t>(listed ? random() % most_rows : i);
    for (const size_t m : {1, 2, 3, 6, 7, 8, 13, 14, 15, 17, 33, 130}) {
      if (m > most_rows) continue;
      std::vector<float> expected(reference.size(), kBefore), got(reference.size(), kBefore);
      for (size_t i = 0; i < m; ++i)
        std::copy_n(&reference[rows[i] * row_floats], row_floats, &expected[i * row_floats]);
      listed ? gemm.RunListed(panels.data, acts, rows.data(), got.data(), n_panels, m)
             : gemm.Run(panels.data, acts, got.data(), n_panels, m);
      ASSERT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0)
          << IsaName(isa) << ", " << format.name << ", " << blocks << " blocks, " << n_panels
          << " panels, " << m << (listed ? " listed" : "") << " rows";
    }
  }
}

TEST(Gemm, EqualsItsReferenceToTheBit) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) {
      std::printf("skipped: this CPU has no %s\n", std::string(IsaName(isa)).c_str());
      continue;
    }
    // From 33 blocks on, several chunks of kSumBlocks: of whole ones, and with a last one of an odd
    // or even number.
    for (const size_t blocks : {1, 2, 5, 32, 33, 66, 96}) {
      for (const size_t n_panels : {1, 2, 7})
        ExpectReference(isa, DefaultTuning(isa), blocks, n_panels);
    }
  }
}

// The other formats, in whole super-blocks where they have them.
TEST(Gemm, EveryFormatEqualsItsReferenceToTheBit) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) continue;
    KernelTuning cut = DefaultTuning(isa);
    for (Schedule& of : cut.products.of)
      of.slice = {.blocks = 10, .panels = 3 * of.tile.panels, .rows = 16};
    // Weights unpacked once a slice, also of few rows: in whole chunks, and cut.
    KernelTuning unpacked = DefaultTuning(isa), unpacked_cut = cut;
    for (Schedule& of : unpacked.products.of) {
      of.tile.panels = std::min(of.tile.panels, SliceSpec::kMaxUnpackedPanels);
      of.slice = {.rows = 28, .unpacked = true};
    }
    for (Schedule& of : unpacked_cut.products.of) {
      of.tile = {.rows = 2};
      of.slice.unpacked = true;
    }
    for (const PanelFormat* format : kPanelFormats) {
      for (const KernelTuning& tuning : {DefaultTuning(isa), cut, unpacked, unpacked_cut}) {
        for (const size_t groups : {1, 4, 5, 9}) {
          for (const size_t n_panels : {1, 7})
            ExpectReference(isa, tuning, groups * format->group_blocks, n_panels, *format);
        }
        for (const size_t odd : {5, 33}) {
          if (format->group_blocks == 2) ExpectReference(isa, tuning, odd, 3, *format);
        }
      }
    }
  }
}

// 4-bit weights have the bits of the same weights as Q8_0.
TEST(Gemm, CodesHaveTheBitsOfTheirIntegers) {
  constexpr size_t kBlocks = 6;
  for (const PanelFormat* format : {&kQ4_0Panel, &kQ5_0Panel, &kIq4NlPanel, &kMxfp4Panel}) {
    const PanelShape codes{kBlocks, *format}, bytes{kBlocks, kQ8Panel};
    const AlignedBytes panel = RandomPanels(codes, 1), q8(bytes.bytes());
    std::vector<model::Q8Block> rows(kPanelRows * kBlocks);
    const void* at[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) {
      at[r] = &rows[r * kBlocks];
      for (size_t b = 0; b < kBlocks; ++b) {
        PanelBlock block;
        format->unpack(panel.data, b, r, &block);
        rows[r * kBlocks + b].d = model::F32ToF16(block.scale[0]);
        std::memcpy(rows[r * kBlocks + b].q, block.q, sizeof(block.q));
      }
    }
    kQ8Panel.pack(at, kBlocks, q8.data);
    AlignedBytes x(3 * ActRowBytes(kBlocks));
    std::vector<float> values(kBlocks * kBlock);
    for (size_t m = 0; m < 3; ++m) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::sin(static_cast<float>(i * i + 7 * m)) * static_cast<float>(m + 1);
      GetElementwise(Isa::kScalar)
          .quantize(values.data(), reinterpret_cast<ActBlock*>(x.data + m * ActRowBytes(kBlocks)),
                    values.size());
    }
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
      if (!HostHas(isa)) continue;
      const auto product = [&](const PanelShape& shape, const AlignedBytes& from) {
        std::vector<float> y(3 * kPanelRows);
        Gemm::Make(isa, {shape, ActRowBytes(kBlocks), kPanelRows * sizeof(float), false},
                   DefaultTuning(isa))
            .Run(from.data, reinterpret_cast<const ActBlock*>(x.data), y.data(), 1, 3);
        return y;
      };
      EXPECT_EQ(product(codes, panel), product(bytes, q8)) << format->name << ", " << IsaName(isa);
    }
  }
}

// The bytes of a type's blocks that hold codes.
std::pair<size_t, size_t> CodeBytes(model::TensorType type) {
  using namespace model;
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kIQ4_NL:
      return {offsetof(Q4Block, q), sizeof(Q4Block)};
    case TensorType::kQ4_1:
      return {offsetof(Q4_1Block, q), sizeof(Q4_1Block)};
    case TensorType::kQ5_0:
      return {offsetof(Q5Block, fifth), sizeof(Q5Block)};
    case TensorType::kQ5_1:
      return {offsetof(Q5_1Block, fifth), sizeof(Q5_1Block)};
    case TensorType::kMXFP4:
      return {offsetof(Mxfp4Block, q), sizeof(Mxfp4Block)};
    case TensorType::kQ4_K:
      return {offsetof(Q4KBlock, q), sizeof(Q4KBlock)};
    case TensorType::kQ5_K:
      return {offsetof(Q5KBlock, fifth), sizeof(Q5KBlock)};
    case TensorType::kQ6_K:
      return {offsetof(Q6KBlock, low), offsetof(Q6KBlock, scales)};
    case TensorType::kIQ4_XS:
      return {offsetof(Iq4XsBlock, q), sizeof(Iq4XsBlock)};
    default:
      return {offsetof(Q8Block, q), sizeof(Q8Block)};
  }
}

// The largest sums that codes and activations can make, which must not leave 16 bits where they are
// kept in 16 bits: all codes alike, for each byte of codes, and all activations 127 or -127.
TEST(Gemm, TheLargestSumsAreExact) {
  for (const PanelFormat* format : kPanelFormats) {
    const size_t blocks = std::max<size_t>(format->group_blocks, 4);
    const PanelShape shape{blocks, *format};
    const auto [first, last] = CodeBytes(format->type);
    std::vector<uint8_t> row(shape.row_bytes());
    std::minstd_rand random(7);
    FillRandomRow(shape, random, row.data());
    const size_t block_bytes = model::RowBytes(format->type, format->group_blocks > 2 ? 256 : 32);
    for (const int code : {0x00, 0xFF, 0x77, 0x80, 0x81, 0x7F}) {
      for (size_t at = 0; at < row.size(); at += block_bytes)
        std::fill(&row[at + first], &row[at] + last, static_cast<uint8_t>(code));
      const std::vector<const void*> rows(kPanelRows, row.data());
      const AlignedBytes panel(shape.bytes());
      format->pack(rows.data(), blocks, panel.data);
      constexpr size_t kRows = 16;  // enough for slices that are unpacked
      const AlignedBytes x(kRows * ActRowBytes(blocks));
      for (size_t m = 0; m < kRows; ++m) {
        const std::vector<float> values(blocks * kBlock, m % 2 == 0 ? 1.f : -1.f);
        GetElementwise(Isa::kScalar)
            .quantize(values.data(), reinterpret_cast<ActBlock*>(x.data + m * ActRowBytes(blocks)),
                      values.size());
      }
      const GemmShape product{shape, ActRowBytes(blocks), kPanelRows * sizeof(float), false};
      std::vector<float> reference(kRows * kPanelRows);
      const auto* acts = reinterpret_cast<const ActBlock*>(x.data);
      ASSERT_EQ(acts[0].q[0], 127);
      GemmReference(product, panel.data, acts, reference.data(), 1, kRows);
      for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
        if (!HostHas(isa)) continue;
        const Gemm gemm = Gemm::Make(isa, product, DefaultTuning(isa));
        for (const size_t m : {size_t{2}, kRows}) {
          std::vector<float> got(m * kPanelRows);
          gemm.Run(panel.data, acts, got.data(), 1, m);
          EXPECT_EQ(std::memcmp(got.data(), reference.data(), got.size() * sizeof(float)), 0)
              << format->name << ", " << IsaName(isa) << ", codes " << code << ", " << m << " rows";
        }
      }
    }
  }
}

// Schedules other than the default: fewer rows; fewer and more panels; inputs, rows and panels cut
// into the smallest slices and into larger ones; every load form and prefetch.
TEST(Gemm, OtherSchedulesGiveTheSameBits) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) continue;
    KernelTuning narrow = DefaultTuning(isa), small = narrow, wide = narrow;
    for (Schedule& of : narrow.products.of) {
      of.tile.panels = 1;
      of.tile.load = ActLoad::kBroadcast;
      of.tile.prefetch = Prefetch::kNta;
      of.tile.prefetch_bytes = 64;
      of.slice = {.blocks = 2, .panels = 1, .rows = of.tile.rows};
    }
    for (Schedule& of : small.products.of) {
      of.tile.rows = 1;
      of.slice = {.blocks = 10, .panels = 3 * of.tile.panels, .rows = 7};
    }
    small.products[14].slice = {};  // tiles of one row, in slices of all rows
    small.products[15].tile = {.rows = 2, .prefetch = Prefetch::kT1, .prefetch_bytes = 4096};
    small.products[15].slice = {.blocks = 30, .panels = 8, .rows = 64};
    for (Schedule& of : wide.products.of) of.slice = {};
    if (isa == Isa::kAvx512Vnni) {
      wide.products.Fill({.tile = {5, 2}, .slice = {.blocks = 16, .panels = 4, .rows = 128}});
      wide.products[1] = {.tile = {1, 7}, .slice = {}};
      wide.products[2] = {.tile = {2, 5}, .slice = {}};
      wide.products[13] = {.tile = {.rows = 13, .load = ActLoad::kEmbedded}, .slice = {}};
      wide.products[14] = {.tile = {.rows = 14, .load = ActLoad::kBroadcast}, .slice = {}};
      wide.products[130] = {.tile = {7, 1}, .slice = {.blocks = 4, .panels = 0, .rows = 512}};
    }
    for (const KernelTuning& tuning : {narrow, small, wide}) {
      for (const size_t blocks : {5, 32, 70}) {
        for (const size_t n_panels : {2, 7}) ExpectReference(isa, tuning, blocks, n_panels);
      }
    }
  }
}

// Every tile that fits the registers, in every load form and with every prefetch, for every number
// of rows, and with chunks that are cut in any way: Make compares each with the reference.
TEST(Gemm, EveryTileGivesTheSameBits) {
  const Isa isa = BestIsa();
  if (isa == Isa::kScalar) GTEST_SKIP() << "no generated kernels on this CPU";
  const GemmShape shape{{35}, ActRowBytes(35), 8 * kPanelRows * sizeof(float), true};
  size_t fit = 0, cut = 2;
  for (size_t rows = 1; rows <= TileSpec::kMaxRows; ++rows) {
    for (size_t panels = 1; panels <= TileSpec::kMaxPanels; ++panels) {
      for (const ActLoad load : {ActLoad::kBroadcast, ActLoad::kEmbedded}) {
        const auto prefetch = static_cast<Prefetch>(fit % 4);
        const TileSpec tile{rows, panels, load, prefetch, prefetch == Prefetch::kNone ? 0u : 512u};
        if (!TileFits(isa, tile)) continue;
        KernelTuning tuning = DefaultTuning(isa);
        const bool unpacked = fit % 3 == 0 && panels <= SliceSpec::kMaxUnpackedPanels;
        tuning.products.Fill(
            {tile, {.blocks = cut, .panels = 0, .rows = 32, .unpacked = unpacked}});
        EXPECT_NO_THROW(Gemm::Make(isa, shape, tuning)) << rows << " x " << panels;
        for (const PanelFormat* format : kPanelFormats) {
          const GemmShape small{
              {8, *format}, ActRowBytes(8), 8 * kPanelRows * sizeof(float), false};
          EXPECT_NO_THROW(Gemm::Make(isa, small, tuning))
              << format->name << ", " << rows << " x " << panels;
        }
        ++fit;
        cut = cut % kSumBlocks + 2;
      }
    }
  }
  EXPECT_EQ(fit, isa == Isa::kAvx512Vnni ? 44u : isa == Isa::kAvxVnni ? 3u : 2u);
}

TEST(Gemm, RefusesSchedulesThatDoNotFit) {
  const GemmShape shape{{2}, ActRowBytes(2), 64, false};
  const auto refused = [&](Isa isa, size_t rows, auto&& change) {
    KernelTuning tuning = DefaultTuning(isa);
    tuning.products = AnalyticSchedules(isa, {});  // whatever this machine has
    change(tuning.products[rows]);
    EXPECT_FALSE(ScheduleFits(isa, tuning.products[rows])) << IsaName(isa);
    EXPECT_THROW(Gemm::Make(isa, shape, tuning), Error) << IsaName(isa);
  };
  refused(Isa::kScalar, 3, [](Schedule& s) { s.tile.rows = 0; });
  refused(Isa::kScalar, 3, [](Schedule& s) { s.tile.rows = TileSpec::kMaxRows + 1; });
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) continue;
    refused(isa, 3, [](Schedule& s) { s.tile.rows = 0; });
    refused(isa, 4, [](Schedule& s) { ++s.tile.rows; });
    refused(isa, 4, [](Schedule& s) { ++s.tile.panels; });
    refused(isa, 1, [](Schedule& s) { s.tile.panels = 0; });
    refused(isa, 2, [](Schedule& s) { s.tile.load = static_cast<ActLoad>(9); });
    refused(isa, 2, [](Schedule& s) { s.tile.prefetch = static_cast<Prefetch>(9); });
    refused(isa, 2, [](Schedule& s) { s.tile.prefetch_bytes = TileSpec::kMaxPrefetchBytes + 64; });
    refused(isa, 2, [](Schedule& s) {
      s.tile.prefetch = Prefetch::kNone;
      s.tile.prefetch_bytes = 64;
    });
    refused(isa, 15, [](Schedule& s) { s.slice.blocks = 0; });
    refused(isa, 15, [](Schedule& s) { s.slice.blocks = 5; });
    refused(isa, 15, [](Schedule& s) { s.slice.blocks = kSumBlocks + 2; });
    refused(isa, 15, [](Schedule& s) { s.slice.rows = s.tile.rows - 1; });
    refused(isa, 15, [](Schedule& s) { s.slice = {.blocks = 4, .panels = 0, .rows = SIZE_MAX}; });
    refused(isa, 15,
            [](Schedule& s) { s.slice = {.blocks = 4, .panels = SIZE_MAX / 8 * 8, .rows = 16}; });
    refused(isa, 15, [](Schedule& s) { s.slice = {.blocks = 4, .panels = 8, .rows = 65}; });
  }
  if (!HostHas(Isa::kAvx512Vnni)) return;
  // of several panels
  refused(Isa::kAvx512Vnni, 2, [](Schedule& s) { s.tile.load = ActLoad::kEmbedded; });
  refused(Isa::kAvx512Vnni, 2, [](Schedule& s) {
    s.tile.panels = SliceSpec::kMaxUnpackedPanels + 1;
    s.slice.unpacked = true;
  });
}

// Analytic schedules fit whatever the caches, also those that a CPU does not state or states
// wrongly.
TEST(Gemm, AnalyticSchedulesFitAnyCaches) {
  for (const size_t l1 : {size_t{0}, size_t{1}, size_t{16} << 10, size_t{32} << 10,
                          size_t{48} << 10, size_t{1} << 40}) {
    for (const size_t l2 :
         {size_t{0}, size_t{1}, size_t{256} << 10, size_t{2} << 20, size_t{1} << 40}) {
      for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
        for (const size_t vector : {0, 32, 64}) {
          for (const Schedule& schedule : AnalyticSchedules(isa, {l1, l2, vector}).of)
            EXPECT_TRUE(ScheduleFits(isa, schedule)) << l1 << ", " << l2 << ", " << vector;
        }
      }
    }
  }
  EXPECT_EQ(AnalyticSchedules(Isa::kAvx512Vnni, {32 << 10, 1 << 20})[256].slice.blocks, 16u);
  const ScheduleTable halves = AnalyticSchedules(Isa::kAvx512Vnni, {32 << 10, 1 << 20, 32});
  EXPECT_EQ(halves[256].tile.panels, 1u);
  EXPECT_EQ(halves[256].slice.rows, 280u);  // half of L2
  EXPECT_EQ(halves[2].tile.prefetch, Prefetch::kNone);
  const CoreShape whole = {48 << 10, 1 << 20, 64};
  EXPECT_EQ(AnalyticSchedules(Isa::kAvx512Vnni, whole)[8].tile.panels, 2u);
  const KernelTuning tuning = DefaultTuning(Isa::kAvx512Vnni, whole);
  EXPECT_TRUE(tuning.products[256].slice.unpacked);
  EXPECT_NE(tuning.products[12].tile.prefetch, Prefetch::kNone);
  EXPECT_EQ(tuning.products_in_l2[12].tile.prefetch, Prefetch::kNone);
  const ScheduleTable avx2 = AnalyticSchedules(Isa::kAvx2, {});
  EXPECT_TRUE(halves[256].slice.unpacked && avx2[16].slice.unpacked);
  EXPECT_FALSE(halves[8].slice.unpacked || avx2[2].slice.unpacked);
}

// The reference itself, against a product in double: d * q of both sides is exact there, so that
// only float accumulation differs.
TEST(Gemm, TheReferenceIsAProduct) {
  const Matrix matrix(5, 2, 3);
  const GemmShape shape{{5}, ActRowBytes(5), 2 * kPanelRows * sizeof(float), false};
  AlignedBytes x(shape.x_stride_bytes);
  auto* acts = reinterpret_cast<ActBlock*>(x.data);
  GetElementwise(Isa::kScalar).quantize(matrix.values.data() + 31, acts, 5 * kBlock);
  std::vector<float> y(2 * kPanelRows);
  GemmReference(shape, matrix.packed.data, acts, y.data(), 2, 1);
  for (size_t row = 0; row < matrix.rows; ++row) {
    double sum = 0, magnitude = 0;
    for (size_t i = 0; i < 5 * kBlock; ++i) {
      const model::Q8Block& w = matrix.quantised[row * 5 + i / kBlock];
      const double term = static_cast<double>(model::F16ToF32(w.d)) * w.q[i % kBlock] *
                          acts[i / kBlock].d * acts[i / kBlock].q[i % kBlock];
      sum += term;
      magnitude += std::abs(term);
    }
    // 5 blocks with a product and a fused multiply-add each, whose relative error is 2^-24 of the
    // sum so far.
    EXPECT_NEAR(y[row], sum, magnitude * 10 * 0x1p-24) << row;
  }
  for (size_t row = matrix.rows; row < y.size(); ++row) EXPECT_EQ(y[row], 0.0f);
}

// With LARDER_PERF_MAP=1 each tile has a line "START SIZE name" in the file that perf reads.
TEST(Gemm, TilesHaveNamesForPerf) {
  const Isa isa = BestIsa();
  if (isa == Isa::kScalar) GTEST_SKIP() << "no generated kernels on this CPU";
  ASSERT_EQ(setenv("LARDER_PERF_MAP", "1", 1), 0);
  const KernelTuning tuning = DefaultTuning(isa);
  Gemm::Make(isa, GemmShape{{3}, ActRowBytes(3), 256, true}, tuning);
  unsetenv("LARDER_PERF_MAP");
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  std::map<std::string, std::pair<uint64_t, uint64_t>> functions;  // by name: start, size
  std::ifstream file(path);
  uint64_t start = 0, size = 0;
  std::string name;
  while (file >> std::hex >> start >> size && std::getline(file >> std::ws, name))
    functions[name] = {start, size};
  std::filesystem::remove(path);
  for (size_t m = 1; m <= 14; ++m) {
    const TileSpec& spec = tuning.products[m].tile;
    const size_t rows = CeilDiv(m, CeilDiv(m, spec.rows));
    const std::string tile =
        "larder::gemm.q8_0.3blocks." + std::to_string(rows) + "x" + std::to_string(spec.panels) +
        (spec.prefetch == Prefetch::kNone ? "." : ".ahead.") + std::string(IsaName(isa));
    ASSERT_TRUE(functions.contains(tile)) << tile;
    const auto [at, bytes] = functions[tile];
    ASSERT_GT(bytes, 100u) << tile;
    // The code ends with the function's return, without the padding that aligns the next function.
    EXPECT_EQ(reinterpret_cast<const uint8_t*>(at)[bytes - 1], 0xC3) << tile;
  }
}

// Rows of y closer together than the check's panels are wide, as in small models.
TEST(Gemm, NarrowOutputs) {
  for (const size_t n_panels : {1, 2, 3}) {
    if (!HostHas(BestIsa()) || BestIsa() == Isa::kScalar)
      GTEST_SKIP() << "no generated kernels on this CPU";
    EXPECT_NO_THROW(Gemm::Make(BestIsa(), GemmShape{{2}, ActRowBytes(2), n_panels * 64, false},
                               DefaultTuning(BestIsa())))
        << n_panels;
  }
}

}  // namespace
}  // namespace larder::kernels::gemm
