// The weighted sum of values. For some queries and some vectors of 16 elements, the integer sums of
// a page and the float sums of a chunk stay in registers. If a head needs more of these than there
// are registers, there are several passes over its elements.
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

// What is fetched meanwhile: a register that advances, and by how many bytes for a page of values.
struct Ahead {
  x86::Gp at;
  size_t bytes;
  size_t lines() const { return CeilDiv(bytes, kCacheLineBytes); }
};

// Without VNNI: products of bytes would saturate, so they are products of 16 bits, those of two of
// the four positions at a time: bytes 0 and 2 of each dword, then 1 and 3. Splits the weights
// `four` of all queries, if they are not, into these two: `four` and `odd`.
template <typename SumsOf>
void AddWordDots(Vec16Emitter& e, const std::vector<x86::Vec>& four, const x86::Mem& values,
                 bool split, std::vector<x86::Vec>& odd, SumsOf sums_of) {
  x86::Compiler& cc = e.cc;
  if (split) {
    odd.clear();
    for (const x86::Vec& weights : four) {
      odd.push_back(e.New().part[0]);
      cc.emit(I::kIdVpsrlw, odd.back(), weights, asmjit::Imm(8));
      cc.emit(I::kIdVpand, weights, weights, e.XmmConst(Const::kLowBytes));
    }
  }
  const Arg from(values);
  for (int i = 0; i < e.parts(); ++i) {
    const x86::Ymm even_values = cc.newYmm(), odd_values = cc.newYmm(), t = cc.newYmm();
    cc.emit(I::kIdVmovdqu, odd_values, from.part(i));
    cc.vpsllw(even_values, odd_values, 8);
    cc.vpsraw(even_values, even_values, 8);
    cc.vpsraw(odd_values, odd_values, 8);
    for (size_t m = 0; m < four.size(); ++m) {
      const x86::Vec& sum = sums_of(m).part[i];
      cc.emit(I::kIdVpmaddwd, t, even_values, four[m]);
      cc.emit(I::kIdVpaddd, sum, sum, t);
      cc.emit(I::kIdVpmaddwd, t, odd_values, odd[m]);
      cc.emit(I::kIdVpaddd, sum, sum, t);
    }
  }
}

// One pass over the elements [16 * first, 16 * (first + count)). Fetches evenly: in bursts, the
// fetches would wait for each other.
void Pass(Vec16Emitter& e, const ValuesShape& shape, size_t first, size_t count,
          const x86::Gp& pages, const x86::Gp& weights, const x86::Gp& o, const x86::Gp& n_pages,
          std::span<const Ahead> ahead) {
  x86::Compiler& cc = e.cc;
  const ValuePage layout{shape.blocks};
  const auto offset = [](size_t bytes) { return static_cast<int32_t>(bytes); };
  std::vector<Vec16> sums(shape.queries * count), page_sums(shape.queries * count);
  for (Vec16& sum : sums) sum = e.Zero();
  for (Vec16& sum : page_sums) sum = e.New();
  const x86::Gp page = cc.newUIntPtr(), q = cc.newUIntPtr(), d = cc.newUIntPtr();
  const x86::Gp left = cc.newUIntPtr();
  std::vector<x86::Vec> odd;  // weights
  const asmjit::Label page_loop = cc.newLabel(), store = cc.newLabel();
  cc.mov(page, pages);
  cc.mov(q, weights);
  cc.lea(d, x86::ptr(weights, offsetof(ChunkWeights, d)));
  cc.mov(left, n_pages);
  cc.test(left, left);
  cc.jz(store);
  cc.bind(page_loop);
  for (const Vec16& sum : page_sums) {
    for (int i = 0; i < e.parts(); ++i) {
      const x86::Xmm x = sum.part[i].xmm();  // writing an xmm clears the upper bits
      cc.vpxor(x, x, x);
    }
  }
  for (size_t v = 0; v < ValuePage::kUnitVectors; ++v) {
    for (const Ahead& from : ahead) {
      const size_t end = from.lines() * (v + 1) / ValuePage::kUnitVectors;
      for (size_t line = from.lines() * v / ValuePage::kUnitVectors; line < end; ++line)
        cc.prefetcht1(x86::ptr(from.at, offset(line * kCacheLineBytes)));
    }
    std::vector<x86::Vec> four(shape.queries);  // weights
    for (size_t m = 0; m < shape.queries; ++m) {
      four[m] = e.New().part[0];
      cc.emit(I::kIdVpbroadcastd, four[m],
              x86::dword_ptr(q, offset(m * sizeof(ChunkWeights) + v * ValuePage::kTogether)));
      for (size_t u = 0; e.vnni() && u < count; ++u)
        e.AddDots(page_sums[m * count + u], four[m],
                  x86::ptr(page, offset(layout.vector_offset(first + u, v))));
    }
    if (!e.vnni()) {
      for (size_t u = 0; u < count; ++u) {
        const auto sums_of = [&](size_t m) { return page_sums[m * count + u]; };
        AddWordDots(e, four, x86::ptr(page, offset(layout.vector_offset(first + u, v))), u == 0,
                    odd, sums_of);
      }
    }
  }
  for (size_t m = 0; m < shape.queries; ++m) {
    const Arg scale = e.BroadcastOperand(x86::dword_ptr(d, offset(m * sizeof(ChunkWeights))));
    for (size_t u = 0; u < count; ++u) {
      const Vec16& of_page = page_sums[m * count + u];
      e.Op(I::kIdVcvtdq2ps, of_page, of_page);
      e.Op(I::kIdVfmadd231ps, sums[m * count + u], of_page, scale);
    }
  }
  cc.add(page, offset(layout.bytes()));
  cc.add(q, kValuePagePositions);
  cc.add(d, sizeof(float));
  for (const Ahead& from : ahead) cc.add(from.at, offset(from.bytes));
  cc.dec(left);
  cc.jnz(page_loop);
  cc.bind(store);
  for (size_t m = 0; m < shape.queries; ++m) {
    for (size_t u = 0; u < count; ++u) {
      const size_t at = (m * shape.o_stride + (first + u) * kLanes) * sizeof(float);
      e.Store(x86::ptr(o, offset(at)), sums[m * count + u]);
    }
  }
}

ValuesFn GenerateValues(Isa isa, const ValuesShape& shape, size_t sums) {
  ValuesFn values = nullptr;
  const std::string name = fmt::format("values.{}blocks.{}queries", shape.blocks, shape.queries);
  GenerateVec16(name, isa, &values, [&](Vec16Emitter& e) {
    const auto pages = e.PointerArg(0), w = e.PointerArg(1), o = e.PointerArg(2),
               n_pages = e.PointerArg(3);
    constexpr size_t kKeyPages = kValuePagePositions / kPagePositions;
    const Ahead ahead[] = {{e.PointerArg(4), kKeyPages * kKeyPanel.bytes(shape.blocks)},
                           {e.PointerArg(5), ValuePage{shape.blocks}.bytes()}};
    const size_t units = shape.blocks * kBlock / kLanes;
    const size_t most = sums / shape.queries;
    const size_t passes = CeilDiv(units, most);
    const size_t count = CeilDiv(units, passes);
    // If there are two passes, the first fetches keys and the second values: a pass that fetches
    // both waits for them, and the other one has nothing to wait for (decode, 4 query heads of 128
    // on a Xeon whose L3 reads at 30 GB/s: 33.5 us of attention instead of 27.3).
    const size_t of_pass = passes > 1 ? 1 : std::size(ahead);
    std::span<const Ahead> left = ahead;
    for (size_t first = 0; first < units; first += count) {
      const size_t n = std::min(of_pass, left.size());
      Pass(e, shape, first, std::min(count, units - first), pages, w, o, n_pages, left.first(n));
      left = left.subspan(n);
    }
  });
  return values;
}

void CallReference(const uint8_t* pages, const ChunkWeights* w, float* o, size_t n_pages,
                   const ValuesShape* shape) {
  ValuesReference(*shape, pages, w, o, n_pages);
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
  LARDER_CHECK(shape.queries * shape.o_stride < (size_t{1} << 28),
               "a stride of {} does not fit an instruction", shape.o_stride);
  if (isa == Isa::kScalar) return ScalarValues(shape);
  if (!HostHas(isa)) {
    throw Error("kernels: this CPU (or its operating system) lacks {}; choose {} or less",
                IsaName(isa), IsaName(BestIsa()));
  }
  const ValuesFn values = GenerateValues(isa, shape, tuning.value_sums);
  for (const size_t n_pages : {1, 3}) CheckValues(isa, values, shape, n_pages);
  return values;
}

void CheckValues(Isa isa, ValuesFn candidate, const ValuesShape& shape, size_t n_pages) {
  std::vector<uint8_t> pages(n_pages * ValuePage{shape.blocks}.bytes());
  std::mt19937 random(7);
  for (auto& byte : pages) {
    do {
      byte = static_cast<uint8_t>(random());
    } while (byte == 0x80);  // values are in [-127, 127]
  }
  std::vector<ChunkWeights> w(shape.queries);
  for (ChunkWeights& of_query : w) {
    for (uint8_t& q : of_query.q) q = random() % 3 == 0 ? 255 : random() % 256;
    const auto d = MakeInput(Pattern::kGaussian, ChunkWeights::kPages, random());
    std::copy(d.begin(), d.end(), of_query.d);
  }
  const size_t width = shape.blocks * kBlock;
  // Gaps between rows and the floats after the last one must not change.
  std::vector<float> got((shape.queries - 1) * shape.o_stride + width + kLanes, -1.0f), want = got;
  candidate(pages.data(), w.data(), got.data(), n_pages, pages.data(), pages.data());
  ValuesReference(shape, pages.data(), w.data(), want.data(), n_pages);
  RequireSameBits(isa, "values", "gaussian", n_pages, got.data(), want.data(), want.size());
}

}  // namespace larder::kernels::rows
