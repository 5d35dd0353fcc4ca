// The weighted sum of values: sums of 16 columns stay in registers over all positions of a chunk.
// If a head has more sums than registers, there are several passes over its columns, so that each
// sum adds its positions in ascending order and each value is converted once.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <random>
#include <span>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "kernels/jit/vec16.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline rows {
namespace {

namespace I = x86::Inst;

constexpr size_t kLanes = 16;

// Registers that advance over the pages to be fetched, and how far per page.
struct Ahead {
  x86::Gp at;
  size_t page_bytes;
  size_t lines() const { return CeilDiv(page_bytes, kCacheLineBytes); }
};

// One pass over columns [16 * first, 16 * (first + count)). Fetches a page of each `ahead` per page
// of values, evenly over its positions: in bursts, the fetches would wait for each other.
void Pass(Vec16Emitter& e, const ValuesShape& shape, size_t first, size_t count,
          const x86::Gp& pages, const x86::Gp& weights, const x86::Gp& o, const x86::Gp& positions,
          std::span<const Ahead> ahead) {
  x86::Compiler& cc = e.cc;
  const ValuePage layout{shape.blocks};
  const auto offset = [](size_t bytes) { return static_cast<int32_t>(bytes); };
  std::vector<Vec16> sums(shape.queries * count);
  for (Vec16& sum : sums) sum = e.Zero();
  const x86::Gp page = cc.newUIntPtr(), value = cc.newUIntPtr(), w = cc.newUIntPtr();
  const x86::Gp left = cc.newUIntPtr(), in_page = cc.newUIntPtr(), page_positions = cc.newUIntPtr();
  const asmjit::Label page_loop = cc.newLabel(), position_loop = cc.newLabel(),
                      store = cc.newLabel();
  cc.lea(page, x86::ptr(pages, offset(layout.value_offset(0))));
  cc.mov(w, weights);
  cc.mov(page_positions, kPagePositions);
  cc.mov(left, positions);
  cc.test(left, left);
  cc.jz(store);
  cc.bind(page_loop);
  cc.mov(in_page, left);
  cc.cmp(in_page, page_positions);
  cc.cmova(in_page, page_positions);
  cc.sub(left, in_page);
  cc.mov(value, page);
  const auto fetch = [&](const Ahead& from, size_t line) {
    cc.prefetcht1(x86::ptr(from.at, offset(line * kCacheLineBytes)));
  };
  for (const Ahead& from : ahead) {
    const size_t rest = from.lines() % kPagePositions, per_position = from.lines() / kPagePositions;
    for (size_t line = 0; line < rest; ++line) fetch(from, per_position * kPagePositions + line);
  }
  const x86::Gp fetched = cc.newUIntPtr();
  if (!ahead.empty()) cc.xor_(fetched.r32(), fetched.r32());
  cc.bind(position_loop);
  for (const Ahead& from : ahead) {
    for (size_t line = 0; line < from.lines() / kPagePositions; ++line) {
      cc.prefetcht1(x86::ptr(from.at, fetched, 0, offset(line * kPagePositions * kCacheLineBytes)));
    }
  }
  if (!ahead.empty()) cc.add(fetched, kCacheLineBytes);
  // Units of one block have the same weights. With AVX-512 a weight of several units is loaded
  // once: as operands of the multiply-adds, weights would take both load ports in every cycle.
  for (size_t unit = first, end = first; unit < first + count; unit = end) {
    const size_t block = unit * kLanes / kBlock;
    const size_t block_end = (block + 1) * kBlock / kLanes;
    end = e.avx512() ? std::min(first + count, block_end) : unit + 1;
    std::vector<Vec16> values;
    for (size_t u = unit; u < end; ++u)
      values.push_back(e.BytesToFloats(x86::ptr(value, offset(u * kLanes))));
    for (size_t m = 0; m < shape.queries; ++m) {
      const x86::Mem weight =
          x86::dword_ptr(w, offset((m * shape.blocks + block) * shape.w_stride * sizeof(float)));
      const auto sum = [&](size_t i) { return sums[m * count + unit - first + i]; };
      if (values.size() == 1) {
        e.Op(I::kIdVfmadd231ps, sum(0), values[0], e.BroadcastOperand(weight));
        continue;
      }
      const Vec16 all = e.Broadcast(weight);
      for (size_t i = 0; i < values.size(); ++i) e.Op(I::kIdVfmadd231ps, sum(i), values[i], all);
    }
  }
  cc.add(value, offset(layout.row_bytes()));
  cc.add(w, sizeof(float));
  cc.dec(in_page);
  cc.jnz(position_loop);
  cc.add(page, offset(layout.bytes()));
  for (const Ahead& from : ahead) cc.add(from.at, offset(from.page_bytes));
  cc.test(left, left);
  cc.jnz(page_loop);
  cc.bind(store);
  for (size_t m = 0; m < shape.queries; ++m) {
    for (size_t unit = first; unit < first + count; ++unit) {
      const size_t at = (m * shape.o_stride + unit * kLanes) * sizeof(float);
      e.Store(x86::ptr(o, offset(at)), sums[m * count + unit - first]);
    }
  }
}

ValuesFn GenerateValues(Isa isa, const ValuesShape& shape, size_t sums) {
  ValuesFn values = nullptr;
  const std::string name = fmt::format("values.{}blocks.{}queries", shape.blocks, shape.queries);
  GenerateVec16(name, isa, &values, [&](Vec16Emitter& e) {
    const auto pages = e.PointerArg(0), w = e.PointerArg(1), o = e.PointerArg(2),
               positions = e.PointerArg(3);
    const Ahead ahead[] = {{e.PointerArg(4), kKeyPanel.bytes(shape.blocks)},
                           {e.PointerArg(5), ValuePage{shape.blocks}.bytes()}};
    const size_t units = shape.blocks * kBlock / kLanes;
    const size_t most = sums / shape.queries;
    const size_t passes = CeilDiv(units, most);
    const size_t count = CeilDiv(units, passes);
    // Of two passes the first fetches keys, the second one values: a pass that fetches both waits
    // for them, and the other one has nothing to wait for (decode, 4 query heads of 128 on a Xeon
    // whose L3 reads at 30 GB/s: 33.5 us of attention instead of 27.3).
    const size_t of_pass = passes > 1 ? 1 : std::size(ahead);
    std::span<const Ahead> left = ahead;
    for (size_t first = 0; first < units; first += count) {
      const size_t n = std::min(of_pass, left.size());
      Pass(e, shape, first, std::min(count, units - first), pages, w, o, positions, left.first(n));
      left = left.subspan(n);
    }
  });
  return values;
}

void CallReference(const uint8_t* pages, const float* w, float* o, size_t positions,
                   const ValuesShape* shape) {
  ValuesReference(*shape, pages, w, o, positions);
}

// The reference as a ValuesFn: a stub that passes the shape as fifth argument.
ValuesFn ScalarValues(const ValuesShape& shape) {
  static std::mutex mutex;
  static auto* shapes = new std::deque<ValuesShape>;  // never destroyed, because stubs point into
                                                      // it
  const std::lock_guard lock(mutex);
  const ValuesShape* kept = &shapes->emplace_back(shape);
  return Jit::Generate<ValuesFn>("larder::values.scalar", [&](x86::Assembler& a) {
    a.mov(x86::r8, reinterpret_cast<uintptr_t>(kept));
    a.mov(x86::rax, reinterpret_cast<uintptr_t>(&CallReference));
    a.jmp(x86::rax);
  });
}

}  // namespace

ValuesFn MakeValues(Isa isa, const ValuesShape& shape, const AttentionTuning& tuning) {
  if (tuning.value_queries > tuning.value_sums) {
    throw Error("kernels: {} queries of values, but {} sums", tuning.value_queries,
                tuning.value_sums);
  }
  LARDER_CHECK(shape.blocks >= 1 && shape.queries >= 1 && shape.queries <= tuning.value_queries,
               "{} blocks, {} queries for {}", shape.blocks, shape.queries, IsaName(isa));
  LARDER_CHECK(shape.queries * shape.blocks * shape.w_stride < (size_t{1} << 28) &&
                   shape.queries * shape.o_stride < (size_t{1} << 28),
               "strides {} and {} do not fit an instruction", shape.w_stride, shape.o_stride);
  if (isa == Isa::kScalar) return ScalarValues(shape);
  if (!HostHas(isa)) {
    throw Error("kernels: this CPU (or its operating system) lacks {}; choose {} or less",
                IsaName(isa), IsaName(BestIsa()));
  }
  const ValuesFn values = GenerateValues(isa, shape, tuning.value_sums);
  for (const size_t positions : {1, 16, 37}) {
    CheckValues(isa, values, shape, std::min<size_t>(positions, shape.w_stride));
  }
  return values;
}

void CheckValues(Isa isa, ValuesFn candidate, const ValuesShape& shape, size_t positions) {
  std::vector<uint8_t> pages(CeilDiv(positions, kPagePositions) * ValuePage{shape.blocks}.bytes());
  std::mt19937 random(7);
  for (auto& byte : pages) byte = static_cast<uint8_t>(random());
  const auto w = MakeInput(Pattern::kGaussian, shape.queries * shape.blocks * shape.w_stride, 8);
  const size_t width = shape.blocks * kBlock;
  // Gaps between rows and the floats after the last one must not change.
  std::vector<float> got((shape.queries - 1) * shape.o_stride + width + kLanes, -1.0f), want = got;
  candidate(pages.data(), w.data(), got.data(), positions, pages.data(), pages.data());
  ValuesReference(shape, pages.data(), w.data(), want.data(), positions);
  RequireSameBits(isa, "values", "gaussian", positions, got.data(), want.data(), want.size());
}

}  // namespace larder::kernels::rows
