#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kernels/gemm/gemm_generate.h"

namespace larder::kernels::inline gemm {
namespace {

// Who makes the kernels of an instruction set. A new one is a row here, beside its limits and
// schedules in kernels/formats/.
struct Generator {
  Isa isa;
  GemmFn (*tile)(const TileShape&);
  UnpackFn (*unpack)(const TileShape&, const PanelShape& unpacked);
};
constexpr Generator kGenerators[] = {
    {Isa::kAvx2, GenerateGemmAvx2, GenerateUnpackAvx2},
    {Isa::kAvxVnni, GenerateGemmAvxVnni, GenerateUnpackAvxVnni},
    {Isa::kAvx512Vnni, GenerateGemmAvx512, GenerateUnpackAvx512},
};

const Generator& GeneratorOf(Isa isa) {
  const auto* found = std::ranges::find(kGenerators, isa, &Generator::isa);
  LARDER_CHECK(found != std::end(kGenerators), "no kernels of {}", IsaName(isa));
  return *found;
}

}  // namespace

Gemm Gemm::Make(Isa isa, const GemmShape& shape, const KernelTuning& tuning) {
  LARDER_CHECK(shape.panel.blocks > 0 && shape.x_stride_bytes % 16 == 0 &&
               shape.y_stride_bytes % 4 == 0);
  if (!HostHas(isa))
    throw Error("kernels: this CPU has no {}; it has {}", IsaName(isa), IsaName(BestIsa()));
  ScheduleTable table = tuning.For(shape.panel, shape.weight_bytes);
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of) {
    const auto& [tile, slice] = table.of[of];
    if (ScheduleFits(isa, table.of[of])) continue;
    throw Error(
        "kernels: a tile of {} rows x {} panels in slices of {} rows x {} panels x {} blocks, for "
        "products of {} rows, does not fit the registers of {} or the limits of a slice",
        tile.rows, tile.panels, slice.rows, slice.panels, slice.blocks, ScheduleTable::Rows(of),
        IsaName(isa));
  }
  for (Schedule& schedule : table.of) {
    if (shape.listed) schedule.tile.rows = std::min(schedule.tile.rows, kMostListedRows);
  }
  Gemm gemm;
  gemm.shape_ = shape;
  gemm.panel_bytes_ = shape.panel.bytes();
  gemm.unpacked_ = shape;
  // A chunk; the slices of an odd number of blocks include one of an odd number, which tiles must
  // expect.
  const size_t blocks = shape.panel.blocks, whole = kSumBlocks + blocks % 2;
  gemm.unpacked_.panel = {.blocks = std::min(blocks, whole),
                          .format = UnpackedFormat(shape.panel.format)};
  gemm.unpacked_bytes_ = gemm.unpacked_.panel.bytes();
  LARDER_CHECK(SliceSpec::kMaxUnpackedPanels * gemm.unpacked_bytes_ <= kMaxUnpackedBytes);
  if (isa == Isa::kScalar) return gemm;  // no tiles: Run calls the reference
  gemm.Generate(isa, table);
  gemm.FindOnePasses();
  gemm.CheckAgainstReference(isa);
  return gemm;
}

std::vector<Gemm::Step> Gemm::Steps(const SliceSpec& slice) const {
  std::vector<Step> steps;
  const size_t blocks = shape_.panel.blocks;
  for (size_t chunk = 0; chunk < blocks; chunk += kSumBlocks) {
    const size_t chunk_end = std::min(chunk + kSumBlocks, blocks);
    // A slice has whole groups.
    const size_t slice_blocks = RoundUp(slice.blocks, shape_.panel.format.group_blocks);
    for (size_t block = chunk; block < chunk_end; block += slice_blocks) {
      const size_t end = std::min(block + slice_blocks, chunk_end);
      const InputSlice::End finished =
          chunk > 0 || shape_.accumulate ? InputSlice::End::kAdd : InputSlice::End::kStore;
      steps.push_back({.panel_offset = shape_.panel.format.group_offset(block),
                       .x_offset = block * sizeof(ActBlock),
                       .slice = {.blocks = end - block,
                                 .resumes = block > chunk,
                                 .end = end < chunk_end ? InputSlice::End::kKeep : finished,
                                 .sums = nullptr}});
    }
  }
  return steps;
}

// A slice is made for panels of slice.blocks blocks. Shorter ones, as a head's keys are, leave room
// for more of them: fewer calls of tiles. Their inputs are not cut, so no sums are kept.
void Gemm::SetSlice(Walk& walk, const SliceSpec& slice) const {
  const size_t times = std::min(slice.blocks, kSumBlocks) / shape_.panel.blocks;
  walk.schedule.slice = slice;
  walk.steps = Steps(slice);
  walk.panels = slice.panels * std::max<size_t>(times, 1);
}

void Gemm::Reslice(const SliceSpec& slice) {
  for (Walk& walk : walks_) SetSlice(walk, slice);
  FindOnePasses();
}

void Gemm::FindOnePasses() {
  for (size_t rows = 1; rows < one_pass_.size(); ++rows) {
    const Walk& walk = walks_[walk_of_[ScheduleTable::Class(rows)]];
    const TileSpec& tile = walk.schedule.tile;
    one_pass_[rows] = {};
    if (rows > tile.rows || walk.steps.size() > 1 || walk.unpack != nullptr) continue;
    one_pass_[rows] = {.tile_panels = static_cast<uint32_t>(tile.panels),
                       .slice = walk.steps.front().slice,
                       .tiles = walk.first[rows]};
  }
}

void Gemm::Generate(Isa isa, const ScheduleTable& table) {
  // The functions generated so far: [0] for panels, [1] for unpacked slices.
  std::vector<std::pair<TileSpec, GemmFn>> made[2];
  std::vector<std::pair<TileSpec, UnpackFn>> unpacks;
  const auto once = [](auto& known, const TileSpec& spec, const auto& generate) {
    for (const auto& [other, function] : known) {
      if (other == spec) return function;
    }
    return known.emplace_back(spec, generate()).second;
  };
  const auto tile = [&](const TileSpec& spec, bool unpacked) {
    return once(made[unpacked], spec, [&] {
      return GeneratorOf(isa).tile({unpacked ? unpacked_ : shape_, spec});
    });
  };
  size_t m = 1;
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of) {
    const Schedule& schedule = table.of[of];
    size_t at = 0;
    while (at < walks_.size() && !(walks_[at].schedule == schedule)) ++at;
    if (at == walks_.size())
      SetSlice(walks_.emplace_back(Walk{.schedule = schedule}), schedule.slice);
    walk_of_[of] = static_cast<uint8_t>(at);
    Walk& walk = walks_[at];
    const bool unpacked = schedule.slice.unpacked && TakesUnpacking(shape_.panel.format);
    if (unpacked) {
      const TileSpec one =
          TileSpec{}.Fetching(schedule.tile.prefetch, schedule.tile.prefetch_bytes);
      walk.unpack = once(unpacks, one, [&] {
        return GeneratorOf(isa).unpack({shape_, one}, unpacked_.panel);
      });
    }
    // Every number of rows that a tile may get, and every number of panels that may be left over.
    // The last class has no end, but the more rows a product has, the closer are its tiles to the
    // largest.
    const bool last = of + 1 == ScheduleTable::kRowClasses;
    for (const size_t end = ScheduleTable::Rows(of) * (last ? 2 : 1); m <= end; ++m) {
      const size_t n_tiles = CeilDiv(m, schedule.tile.rows);
      for (const size_t rows : {m / n_tiles, CeilDiv(m, n_tiles)}) {
        for (size_t panels = 1; panels <= schedule.tile.panels; ++panels) {
          TileSpec spec = schedule.tile;
          spec.rows = rows;
          spec.panels = panels;
          // What a slice was unpacked to is in L1.
          walk.first[rows][panels] = tile(unpacked ? spec.WithoutPrefetch() : spec, unpacked);
          if (n_tiles == 1) continue;
          walk.next[rows][panels] = tile(spec.WithoutPrefetch(), unpacked);
        }
      }
    }
  }
}

void Gemm::CheckAgainstReference(Isa isa) const {
  const GemmShape& shape = shape_;
  // 7 panels: of the tiles that take up to 4, each runs and each number of panels is left over; or
  // as many as the caller's rows of y have room for.
  const size_t n_panels =
      std::clamp<size_t>(shape.y_stride_bytes / (kPanelRows * sizeof(float)), 1, 7);
  constexpr size_t max_rows = TileSpec::kMaxRows;
  const size_t blocks = shape.panel.blocks, panel_bytes = shape.panel.bytes();
  std::minstd_rand random(20260101);
  auto allocate = [](size_t bytes) {
    return std::unique_ptr<uint8_t, void (*)(void*)>(
        static_cast<uint8_t*>(std::aligned_alloc(64, RoundUp(bytes, 64))), std::free);
  };
  auto panels = allocate(n_panels * panel_bytes);
  auto x = allocate(max_rows * shape.x_stride_bytes + blocks * sizeof(ActBlock));
  const size_t y_floats = max_rows * shape.y_stride_bytes / 4 + n_panels * kPanelRows;
  const size_t row_bytes = shape.panel.row_bytes();
  std::vector<uint8_t> weights(kPanelRows * row_bytes);
  for (size_t p = 0; p < n_panels; ++p) {
    const void* rows[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) {
      rows[r] = &weights[r * row_bytes];
      FillRandomRow(shape.panel, random, &weights[r * row_bytes]);
    }
    shape.panel.format.pack(rows, blocks, panels.get() + p * panel_bytes);
  }
  for (size_t m = 0; m < max_rows; ++m) {
    for (size_t b = 0; b < blocks; ++b) {
      ActBlock block{};
      int32_t sums[2] = {};
      for (size_t k = 0; k < kBlock; ++k) {
        int8_t& q = block.q[k];
        // Mostly random, but some blocks are at the extremes, so that a saturating accumulator
        // would show.
        q = b % 3 == 0 ? (m % 2 ? int8_t{127} : int8_t{-127})
                       : static_cast<int8_t>((random() >> 8) % 255 - 127);
        sums[k / (kBlock / 2)] += q;
      }
      const float d = 0.0001f * static_cast<float>(1 + (random() >> 8) % 1000);
      block.d = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, d) & ~3u);
      block.minus_md = -kMagic * block.d;
      block.start = kMagicBits - 128 * (sums[0] + sums[1]);
      block.d_sum = block.d * static_cast<float>(sums[0] + sums[1]);
      for (size_t h = 0; h < 2; ++h) block.half_starts[h] = kMagicBits - 128 * sums[h];
      std::memcpy(x.get() + m * shape.x_stride_bytes + b * sizeof(ActBlock), &block, sizeof(block));
    }
  }
  const auto* acts = reinterpret_cast<const ActBlock*>(x.get());
  std::vector<uint32_t> list(max_rows);
  for (size_t m = 0; m < max_rows; ++m) list[m] = static_cast<uint32_t>((m * 7 + 5) % max_rows);
  const uint32_t* const listed = shape.listed ? list.data() : nullptr;
  // An output does not depend on the number of rows or panels, so one reference serves all tiles.
  constexpr float kUntouched = 0.25f;
  std::vector<float> reference(y_floats, kUntouched), got(y_floats),
      sums(max_rows * n_panels * kPanelRows);
  GemmReference(shape, panels.get(), acts, reference.data(), n_panels, max_rows, listed);
  auto unpacked = allocate(n_panels * unpacked_bytes_);
  const auto check = [&](const Walk& walk, const Tiles& tiles, size_t rows, size_t tile_panels) {
    std::fill(got.begin(), got.end(), kUntouched);
    for (const Step& step : walk.steps) {
      InputSlice slice = step.slice;
      slice.sums = sums.data();
      slice.rows = listed;
      const uint8_t* from = panels.get() + step.panel_offset;
      if (walk.unpack) {
        walk.unpack(from, unpacked.get(), n_panels, slice.blocks);
        from = unpacked.get();
      }
      RunTile(tiles[rows], from, walk.unpack ? unpacked_bytes_ : panel_bytes_,
              reinterpret_cast<const ActBlock*>(x.get() + step.x_offset), got.data(), n_panels,
              rows, tile_panels, slice);
    }
    for (size_t m = 0; m < max_rows; ++m) {
      for (size_t i = 0; i < n_panels * kPanelRows; ++i) {
        const size_t at = m * shape.y_stride_bytes / sizeof(float) + i;
        const float expected = m < rows ? reference[at] : kUntouched;
        if (__builtin_bit_cast(uint32_t, expected) == __builtin_bit_cast(uint32_t, got[at]))
          continue;
        throw Error(
            "kernels: the generated {} product of {} blocks with tiles of {} rows x {} panels, in "
            "slices of {} blocks, differs from its reference: row {}, output {} is {:a}, expected "
            "{:a}; run with --isa scalar and report this CPU",
            IsaName(isa), blocks, rows, tile_panels, walk.schedule.slice.blocks, m, i, got[at],
            expected);
      }
    }
  };
  // Walks share tiles: each is checked once for each way of cutting the inputs.
  std::set<std::pair<GemmFn, size_t>> checked;
  for (const Walk& walk : walks_) {
    for (const Tiles* tiles : {&walk.first, &walk.next}) {
      for (size_t rows = 1; rows <= max_rows; ++rows) {
        for (size_t tile_panels = 1; tile_panels <= TileSpec::kMaxPanels; ++tile_panels) {
          const GemmFn function = (*tiles)[rows][tile_panels];
          if (function && checked.emplace(function, walk.schedule.slice.blocks).second)
            check(walk, *tiles, rows, tile_panels);
        }
      }
    }
  }
}

}  // namespace larder::kernels::gemm
