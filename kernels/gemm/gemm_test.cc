// Matrix products: every instruction set of this host against the scalar reference, bit for bit, on shapes
// that are not multiples of any tile.
#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
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
  explicit AlignedBytes(size_t n) : data(static_cast<uint8_t*>(std::aligned_alloc(64, RoundUp(n, 64)))) {
    std::memset(data, 0, n);
  }
  ~AlignedBytes() { std::free(data); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  uint8_t* data;
};

// A matrix of n_panels * 16 rows without the last 3, and its panels.
struct Matrix {
  Matrix(size_t n_blocks, size_t n_panels, uint32_t seed)
      : blocks(n_blocks), rows(n_panels * kPanelRows - 3), packed(n_panels * kQ8Panel.bytes(n_blocks)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    values.resize(rows * blocks * kBlock);
    for (float& v : values) v = normal(random);
    quantised.resize(rows * blocks);
    model::QuantizeQ8_0(values, quantised.data());
    for (size_t p = 0; p < n_panels; ++p) {
      const model::Q8Block* at[kPanelRows];
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

// Products of 1 to 33 rows, both replacing and accumulating, with the tiles of `tuning`.
void ExpectReference(Isa isa, const KernelTuning& tuning, size_t blocks, size_t n_panels) {
  const Matrix matrix(blocks, n_panels, static_cast<uint32_t>(blocks * 10 + n_panels));
  for (const bool accumulate : {false, true}) {
    const GemmShape shape{
        {blocks}, ActRowBytes(blocks), (n_panels * kPanelRows + 16) * sizeof(float), accumulate};
    const Gemm gemm = Gemm::Make(isa, shape, tuning);
    constexpr size_t kMostRows = 33;
    AlignedBytes x(kMostRows * shape.x_stride_bytes);
    for (size_t i = 0; i < kMostRows; ++i) {
      std::vector<float> row(matrix.values.begin(),
                             matrix.values.begin() + static_cast<std::ptrdiff_t>(blocks * kBlock));
      for (float& v : row) v *= static_cast<float>(i) - 6.5f;
      GetElementwise(Isa::kScalar)
          .quantize(row.data(), reinterpret_cast<ActBlock*>(x.data + i * shape.x_stride_bytes), row.size());
    }
    const auto* acts = reinterpret_cast<const ActBlock*>(x.data);
    const size_t row_floats = shape.y_stride_bytes / sizeof(float);
    constexpr float kBefore = -0.75f;
    std::vector<float> reference(kMostRows * row_floats, kBefore);
    GemmReference(shape, matrix.packed.data, acts, reference.data(), n_panels, kMostRows);
    for (const size_t m : {1, 2, 3, 13, 14, 15, 17, 33}) {
      std::vector<float> expected(reference.size(), kBefore), got(reference.size(), kBefore);
      std::copy_n(reference.begin(), m * row_floats, expected.begin());
      gemm.Run(matrix.packed.data, acts, got.data(), n_panels, m);
      ASSERT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0)
          << IsaName(isa) << ", " << blocks << " blocks, " << n_panels << " panels, " << m << " rows";
    }
  }
}

TEST(Gemm, EqualsItsReferenceToTheBit) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) {
      std::printf("skipped: this CPU has no %s\n", std::string(IsaName(isa)).c_str());
      continue;
    }
    // From 33 blocks on, several chunks of kSumBlocks: of whole ones, and with a last one of an odd or even
    // number.
    for (const size_t blocks : {1, 2, 5, 32, 33, 66, 96}) {
      for (const size_t n_panels : {1, 2, 7}) ExpectReference(isa, DefaultTuning(isa), blocks, n_panels);
    }
  }
}

// Tiles other than the default: fewer rows; fewer and more panels; groups of one, of a few and of all panels.
TEST(Gemm, OtherTilesGiveTheSameBits) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) continue;
    KernelTuning narrow = DefaultTuning(isa), small = narrow, wide = narrow;
    for (TileSpec& tile : narrow.tiles) tile.panels = 1;
    narrow.group_bytes = 1;
    narrow.prefetch_bytes = 64;
    for (TileSpec& tile : small.tiles) tile.rows = 1;
    small.group_bytes = 3 * kQ8Panel.bytes(5);
    wide.group_bytes = size_t{1} << 20;
    wide.prefetch_bytes = 0;
    if (isa == Isa::kAvx512Vnni) {
      wide.tiles.fill({5, 2});
      wide.tiles[1] = {1, 7};
      wide.tiles[2] = {2, 5};
      wide.tiles[13] = {13, 1};
      wide.tiles[14] = {14, 1};
    }
    for (const KernelTuning& tuning : {narrow, small, wide}) {
      for (const size_t blocks : {5, 32, 70}) {
        for (const size_t n_panels : {2, 7}) ExpectReference(isa, tuning, blocks, n_panels);
      }
    }
  }
}

// Every tile that fits the registers, for every number of rows.
TEST(Gemm, EveryTileGivesTheSameBits) {
  const Isa isa = BestIsa();
  if (isa == Isa::kScalar) GTEST_SKIP() << "no generated kernels on this CPU";
  const GemmShape shape{{35}, ActRowBytes(35), 8 * kPanelRows * sizeof(float), true};
  size_t fit = 0;
  for (size_t rows = 1; rows <= KernelTuning::kMaxTileRows; ++rows) {
    for (size_t panels = 1; panels <= KernelTuning::kMaxTilePanels; ++panels) {
      if (!TileFits(isa, {rows, panels})) continue;
      KernelTuning tuning = DefaultTuning(isa);
      tuning.tiles.fill({rows, panels});
      EXPECT_NO_THROW(Gemm::Make(isa, shape, tuning))
          << rows << " x " << panels;  // compares with the reference
      ++fit;
    }
  }
  EXPECT_EQ(fit, isa == Isa::kAvx512Vnni ? 30u : isa == Isa::kAvxVnni ? 3u : 2u);
}

TEST(Gemm, RefusesTilesThatDoNotFit) {
  const GemmShape shape{{2}, ActRowBytes(2), 64, false};
  KernelTuning none = DefaultTuning(Isa::kScalar), many = none;
  none.tiles[3].rows = 0;
  many.tiles[3].rows = KernelTuning::kMaxTileRows + 1;
  EXPECT_THROW(Gemm::Make(Isa::kScalar, shape, none), Error);
  EXPECT_THROW(Gemm::Make(Isa::kScalar, shape, many), Error);
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (!HostHas(isa)) continue;
    KernelTuning rows = DefaultTuning(isa), panels = rows, no_panels = rows, no_rows = rows;
    no_rows.tiles[3].rows = 0;
    ++rows.tiles[4].rows;
    ++panels.tiles[4].panels;
    no_panels.tiles[1].panels = 0;
    for (const KernelTuning& tuning : {rows, panels, no_panels, no_rows}) {
      EXPECT_THROW(Gemm::Make(isa, shape, tuning), Error) << IsaName(isa);
    }
  }
}

// The reference itself, against a product in double: d * q of both sides is exact there, so that only float
// accumulation differs.
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
      const double term = static_cast<double>(model::F16ToF32(w.d)) * w.q[i % kBlock] * acts[i / kBlock].d *
                          acts[i / kBlock].q[i % kBlock];
      sum += term;
      magnitude += std::abs(term);
    }
    // 5 blocks with a product and a fused multiply-add each, whose relative error is 2^-24 of the sum so far.
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
  for (size_t m = 1; m <= KernelTuning::kMaxTileRows; ++m) {
    const auto& [rows, panels] = tuning.tiles[m];
    const std::string tile = "larder::gemm.q8.3blocks." + std::to_string(std::min(m, rows)) + "x" +
                             std::to_string(panels) + ".add." + std::string(IsaName(isa));
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
    if (!HostHas(BestIsa()) || BestIsa() == Isa::kScalar) GTEST_SKIP() << "no generated kernels on this CPU";
    EXPECT_NO_THROW(
        Gemm::Make(BestIsa(), GemmShape{{2}, ActRowBytes(2), n_panels * 64, false}, DefaultTuning(BestIsa())))
        << n_panels;
  }
}

}  // namespace
}  // namespace larder::kernels::gemm
