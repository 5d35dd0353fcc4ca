// The elementwise kernels for AVX2 and AVX-512, each written once for 16 lanes
// (kernels/jit/vec16.h). reference.cc says what they compute.
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernels/jit/vec16.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline rows {
namespace {

namespace I = x86::Inst;

// Emits loops over the items that `left` counts, `unit` to an item: body(n) emits the work on n of
// them at once, the chains of latencies of which run side by side. AVX2 has no registers for more
// than one.
template <typename Body>
void SeveralAtOnce(Vec16Emitter& e, const x86::Gp& left, size_t unit, Body body) {
  for (size_t n = e.avx512() ? 4 : 1; n > 0; n /= 2) {
    const asmjit::Label loop = e.cc.newLabel(), done = e.cc.newLabel();
    e.cc.bind(loop);
    e.cc.cmp(left, n * unit);
    e.cc.jb(done);
    body(n);
    e.cc.sub(left, n * unit);
    e.cc.jmp(loop);
    e.cc.bind(done);
  }
}

// LayerNorm if centred, else RMS norm.
void Norms(Vec16Emitter& e, bool centred) {
  const auto xs = e.PointerArg(0), w = e.PointerArg(1), ys = e.PointerArg(2);
  const auto rows = e.PointerArg(3), n = e.PointerArg(4);
  const auto epsilon = e.FloatArg(5);
  SeveralAtOnce(e, rows, 1, [&](size_t count) {
    struct Row {
      x86::Gp x, y;
      Vec16 squares, scale, mean;
    };
    std::vector<Row> at_once(count);
    for (size_t i = 0; i < count; ++i) {
      Row& row = at_once[i];
      row = {e.cc.newUIntPtr(), e.cc.newUIntPtr(), e.Zero(), {}, {}};
      const auto of_row = static_cast<int32_t>(i * sizeof(float*));
      e.cc.mov(row.x, x86::ptr(xs, of_row));
      e.cc.mov(row.y, x86::ptr(ys, of_row));
    }
    const auto float_of_n = [&] {
      const x86::Xmm float_n = e.cc.newXmm();
      e.cc.vxorps(float_n, float_n, float_n);
      e.cc.vcvtsi2ss(float_n, float_n, n);
      return float_n;
    };
    if (centred) {
      for (Row& row : at_once) row.mean = e.Zero();
      e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
        for (const Row& row : at_once)
          e.Op(I::kIdVaddps, row.mean, row.mean, e.Load(x86::ptr(row.x, at), mask));
      });
      const x86::Xmm float_n = float_of_n();
      for (Row& row : at_once) {
        const x86::Xmm mean = e.Reduce(I::kIdVaddps, row.mean);
        e.cc.vdivss(mean, mean, float_n);
        row.mean = e.Broadcast(mean);
      }
    }
    const Vec16 nothing = centred ? e.Zero() : Vec16();
    e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
      for (const Row& row : at_once) {
        const Vec16 v = e.Load(x86::ptr(row.x, at), mask);
        if (centred) {
          e.Op(I::kIdVsubps, v, v, row.mean);
          if (mask != nullptr) e.Select(v, *mask, nothing);
        }
        // fma(0, 0, s) is s: lanes outside the mask keep their bits
        e.Op(I::kIdVfmadd231ps, row.squares, v, v);
      }
    });
    const x86::Xmm float_n = float_of_n();
    for (Row& row : at_once) {
      const x86::Xmm r = e.Reduce(I::kIdVaddps, row.squares), one = e.cc.newXmm();
      e.cc.vdivss(r, r, float_n);
      e.cc.vaddss(r, r, epsilon);
      e.cc.vsqrtss(r, r, r);
      e.cc.vmovss(one, e.XmmConst(Const::kOne));
      e.cc.vdivss(r, one, r);
      row.scale = e.Broadcast(r);
    }
    e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
      const Vec16 weight = e.Load(x86::ptr(w, at), mask);
      for (const Row& row : at_once) {
        const Vec16 v = e.Load(x86::ptr(row.x, at), mask);
        if (centred) e.Op(I::kIdVsubps, v, v, row.mean);
        e.Op(I::kIdVmulps, v, v, row.scale);
        e.Op(I::kIdVmulps, v, v, weight);
        e.Store(x86::ptr(row.y, at), v, mask);
      }
    });
    e.cc.add(xs, count * sizeof(float*));
    e.cc.add(ys, count * sizeof(float*));
  });
}

// 32 floats, and where their ActBlock goes.
struct FloatBlock {
  Vec16 low, high;
  x86::Gp out;
  int32_t offset = 0;
  x86::Mem at(size_t member = 0) const {
    return x86::ptr(out, offset + static_cast<int32_t>(member));
  }
};

// A block whose elements are all near zero gets d = 0 and, by inverse = 0, q = 0. Uses amax.
void ZeroIfNearZero(Vec16Emitter& e, const x86::Xmm& amax, std::initializer_list<x86::Xmm> values) {
  x86::Compiler& cc = e.cc;
  constexpr int kGreaterEqual = 13;  // GE_OS, false for NaN
  if (e.avx512()) {
    const x86::KReg some = cc.newKw();
    cc.vcmpss(some, amax, e.XmmConst(Const::kQuantZero), kGreaterEqual);
    for (const x86::Xmm& value : values) cc.k(some).z().vmovaps(value, value);
  } else {
    cc.vcmpss(amax, amax, e.XmmConst(Const::kQuantZero), kGreaterEqual);
    for (const x86::Xmm& value : values) cc.vandps(value, value, amax);
  }
}

// Quantises the blocks, whose floats it overwrites. A block is one long chain of latencies: each
// instruction is emitted for all of them before the next one.
void QuantizeBlocks(Vec16Emitter& e, const std::vector<FloatBlock>& blocks) {
  x86::Compiler& cc = e.cc;
  struct Scales {
    x86::Xmm amax, d, inverse;
    Vec16 scale;
  };
  std::vector<Scales> scales(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Vec16 amax = e.New(), other = e.New();
    e.Op(I::kIdVandps, amax, blocks[i].low, e.Constant(Const::kAbsMask));
    e.Op(I::kIdVandps, other, blocks[i].high, e.Constant(Const::kAbsMask));
    e.Op(I::kIdVmaxps, amax, amax, other);
    scales[i].scale = amax;
  }
  for (Scales& s : scales) s.amax = e.Reduce(I::kIdVmaxps, s.scale);
  for (Scales& s : scales) {
    s.d = cc.newXmm();
    s.inverse = cc.newXmm();
    cc.vdivss(s.d, s.amax, e.XmmConst(Const::kQuantMax));
    cc.vandps(s.d, s.d, e.XmmConst(Const::kScaleMask));
    cc.vmovss(s.inverse, e.XmmConst(Const::kOne));
    cc.vdivss(s.inverse, s.inverse, s.d);
  }
  for (Scales& s : scales) {
    ZeroIfNearZero(e, s.amax, {s.d, s.inverse});
    s.scale = e.Broadcast(s.inverse);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const Vec16* v : {&blocks[i].low, &blocks[i].high}) {
      e.Op(I::kIdVmulps, *v, *v, scales[i].scale);
      e.Op(I::kIdVcvtps2dq, *v, *v);
    }
  }
  // |x * inverse| < 127.001, so nothing saturates and no clamping is needed.
  std::vector<x86::Ymm> bytes(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    bytes[i] = e.ToBytes(blocks[i].low, blocks[i].high);
    cc.vmovups(blocks[i].at(), bytes[i]);
  }
  // The sum of 16 q is that of q + 128, less 2048; the sum of unsigned bytes is a sum of absolute
  // differences from 0.
  for (size_t i = 0; i < blocks.size(); ++i) {
    const x86::Ymm q = bytes[i], zero = cc.newYmm();
    const x86::Ymm pairs = cc.newYmm();
    const x86::Xmm first = q.xmm(), second = cc.newXmm(), sum = cc.newXmm(), t = cc.newXmm();
    const x86::Xmm start = cc.newXmm(), minus_md = cc.newXmm();
    cc.vpxor(q, q, e.XmmConst(Const::kByte128));
    cc.vxorps(zero, zero, zero);
    cc.vpsadbw(q, q, zero);
    cc.vpshufd(pairs, q, 0b1110);
    cc.vpaddd(q, q, pairs);
    if (e.avx512()) {
      cc.vextracti32x4(second, q, 1);
    } else {
      cc.vextracti128(second, q, 1);
    }
    cc.vpsubd(first, first, e.XmmConst(Const::kInt2048));
    cc.vpsubd(second, second, e.XmmConst(Const::kInt2048));
    cc.vpaddd(sum, first, second);
    cc.vpslld(first, first, 7);
    cc.vpslld(second, second, 7);
    cc.vmovups(t, e.XmmConst(Const::kMagicInt));
    cc.vpsubd(first, t, first);
    cc.vpsubd(start, first, second);
    cc.vpsubd(second, t, second);
    cc.vmulss(minus_md, scales[i].d, e.XmmConst(Const::kNegMagic));
    cc.vcvtdq2ps(sum, sum);
    cc.vmulss(sum, sum, scales[i].d);
    // Small stores, because the shuffle port is the bottleneck and the store ports are idle.
    cc.vmovss(blocks[i].at(offsetof(ActBlock, d)), scales[i].d);
    cc.vmovss(blocks[i].at(offsetof(ActBlock, minus_md)), minus_md);
    cc.vmovd(blocks[i].at(offsetof(ActBlock, start)), start);
    cc.vmovss(blocks[i].at(offsetof(ActBlock, d_sum)), sum);
    cc.vmovd(blocks[i].at(offsetof(ActBlock, half_starts)), first);
    cc.vmovd(blocks[i].at(offsetof(ActBlock, half_starts) + sizeof(int32_t)), second);
  }
}

// Quantises the blocks of `n` elements to `out`: what `transform` makes of some of them at once.
// load(at, mask) loads 16 elements `at` bytes behind the pointers of `inputs`.
template <typename Load, typename Transform>
void QuantizeVector(Vec16Emitter& e, std::vector<x86::Gp> inputs, const x86::Gp& out,
                    const x86::Gp& n, Load load, Transform transform) {
  x86::Compiler& cc = e.cc;
  const x86::Gp left = cc.newUIntPtr();
  cc.mov(left, n);
  SeveralAtOnce(e, left, kBlock, [&](size_t count) {
    std::vector<FloatBlock> blocks;
    for (size_t i = 0; i < count; ++i) {
      const auto at = static_cast<int32_t>(i * kBlock * sizeof(float));
      blocks.push_back({load(at, nullptr), load(at + 64, nullptr), out,
                        static_cast<int32_t>(i * sizeof(ActBlock))});
    }
    transform(blocks);
    QuantizeBlocks(e, blocks);
    for (const x86::Gp& input : inputs) cc.add(input, count * kBlock * sizeof(float));
    cc.add(out, count * sizeof(ActBlock));
  });
  const asmjit::Label done = cc.newLabel();
  cc.test(left, left);
  cc.jz(done);
  const x86::Gp sixteen = cc.newUIntPtr(), low_count = cc.newUIntPtr();
  cc.mov(sixteen, 16);
  cc.mov(low_count, left);
  cc.cmp(low_count, sixteen);
  cc.cmova(low_count, sixteen);
  cc.sub(left, low_count);
  const Mask16 low_mask = e.FirstLanes(low_count), high_mask = e.FirstLanes(left);
  const std::vector<FloatBlock> last = {{load(0, &low_mask), load(64, &high_mask), out}};
  transform(last);
  QuantizeBlocks(e, last);
  cc.bind(done);
}

void Quantize(Vec16Emitter& e) {
  const auto x = e.PointerArg(0), out = e.PointerArg(1), n = e.PointerArg(2);
  QuantizeVector(
      e, {x}, out, n, [&](int32_t at, const Mask16* mask) { return e.Load(x86::ptr(x, at), mask); },
      [](const std::vector<FloatBlock>&) {});
}

void TransformBlocks(Vec16Emitter& e, const std::vector<FloatBlock>& blocks) {
  for (const int step : {1, 2, 4, 8}) {
    for (const FloatBlock& block : blocks) {
      for (const Vec16* v : {&block.low, &block.high}) e.Butterfly(*v, step);
    }
  }
  for (const FloatBlock& block : blocks) {
    const Vec16 low = e.New();
    e.Op(I::kIdVmovaps, low, block.low);
    e.Op(I::kIdVaddps, block.low, low, block.high);
    e.Op(I::kIdVsubps, block.high, low, block.high);
  }
}

void QuantizeHadamard(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto x = e.PointerArg(0), factors = e.PointerArg(1), out = e.PointerArg(2);
  const auto n = e.PointerArg(3);
  const Vec16 factor = e.Broadcast(e.FloatArg(4));
  const auto transform = [&](const std::vector<FloatBlock>& blocks) { TransformBlocks(e, blocks); };
  const auto load = [&](int32_t at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(x, at), mask);
    e.Op(I::kIdVmulps, v, v, factor);
    return v;
  };
  const asmjit::Label without = cc.newLabel(), end = cc.newLabel();
  cc.test(factors, factors);
  cc.jz(without);
  QuantizeVector(
      e, {x, factors}, out, n,
      [&](int32_t at, const Mask16* mask) {
        const Vec16 v = load(at, mask);
        e.Op(I::kIdVmulps, v, v, e.Load(x86::ptr(factors, at), mask));
        return v;
      },
      transform);
  cc.jmp(end);
  cc.bind(without);
  QuantizeVector(e, {x}, out, n, load, transform);
  cc.bind(end);
}

void QuantizeRow(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto x = e.PointerArg(0), q = e.PointerArg(1), d_out = e.PointerArg(2), n = e.PointerArg(3);
  const Vec16 largest = e.Zero();
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(x, at), mask);
    e.Op(I::kIdVandps, v, v, e.Constant(Const::kAbsMask));
    e.Op(I::kIdVmaxps, largest, v, largest);  // NaN gives the second operand
  });
  const x86::Xmm amax = e.Reduce(I::kIdVmaxps, largest), d = cc.newXmm(), inverse = cc.newXmm();
  cc.vdivss(d, amax, e.XmmConst(Const::kQuantMax));
  cc.vmovss(inverse, e.XmmConst(Const::kOne));
  cc.vdivss(inverse, inverse, d);
  ZeroIfNearZero(e, amax, {d, inverse});
  cc.vmovss(x86::ptr(d_out), d);
  const Vec16 scale = e.Broadcast(inverse), none = e.Zero();
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(x, at), mask);
    e.Op(I::kIdVmulps, v, v, scale);
    e.Op(I::kIdVcvtps2dq, v, v);
    const x86::Gp to = cc.newUIntPtr();
    cc.mov(to, at);
    cc.shr(to, 2);  // a byte for a float
    cc.vmovups(x86::ptr(q, to), e.ToBytes(v, none).xmm());
  });
}

void GateQuantize(Vec16Emitter& e, Gate kind) {
  x86::Compiler& cc = e.cc;
  const auto gate = e.PointerArg(0), up = e.PointerArg(1), stride = e.PointerArg(2);
  const auto out = e.PointerArg(3), out_stride = e.PointerArg(4), rows = e.PointerArg(5);
  cc.shl(stride, 2);  // bytes
  SeveralAtOnce(e, rows, 1, [&](size_t count) {
    std::vector<FloatBlock> blocks;
    std::vector<Vec16> h, t;
    const Vec16 cube =
        kind == Gate::kGeluTanh ? e.Broadcast(e.XmmConst(Const::kGeluCube)) : Vec16();
    const Vec16 zero = kind == Gate::kRelu ? e.Zero() : Vec16();
    for (size_t i = 0; i < count; ++i) {
      for (const int half : {0, 64}) {
        h.push_back(e.Load(x86::ptr(gate, half)));
        if (kind == Gate::kRelu) {
          e.Op(I::kIdVmaxps, h.back(), h.back(), zero);  // NaN gives the second operand
          continue;
        }
        t.push_back(e.New());
        if (kind == Gate::kClamped) {
          e.Op(I::kIdVminps, h.back(), h.back(), e.Constant(Const::kGateLimit));
          e.Op(I::kIdVmulps, t.back(), h.back(), e.Constant(Const::kClampedSlope));
          continue;
        }
        if (kind == Gate::kSilu) {
          e.Op(I::kIdVxorps, t.back(), h.back(), e.Constant(Const::kSignMask));
          continue;
        }
        e.Op(I::kIdVmulps, t.back(), h.back(), h.back());
        e.Op(I::kIdVfmadd213ps, t.back(), cube, e.Constant(Const::kGeluSlope));
        e.Op(I::kIdVmulps, t.back(), t.back(), h.back());
      }
      cc.add(gate, stride);
    }
    // AVX2 has no registers for more than one of them at a time.
    for (size_t i = 0, some = e.avx512() ? std::min<size_t>(4, t.size()) : 1; i < t.size();
         i += some)
      e.Exp({t.data() + i, some});
    for (size_t i = 0; i < count; ++i) {
      for (const size_t half : {0, 1}) {
        const size_t v = 2 * i + half;
        if (kind != Gate::kRelu) {
          e.Op(I::kIdVaddps, t[v], t[v], e.Constant(Const::kOne));
          e.Op(I::kIdVdivps, h[v], h[v], t[v]);
        }
        const x86::Mem of_up = x86::ptr(up, static_cast<int32_t>(64 * half));
        if (kind != Gate::kClamped) {
          e.Op(I::kIdVmulps, h[v], h[v], of_up);
          continue;
        }
        const Vec16 u = e.Load(of_up);
        e.Op(I::kIdVminps, u, u, e.Constant(Const::kGateLimit));
        e.Op(I::kIdVmaxps, u, u, e.Constant(Const::kNegGateLimit));
        e.Op(I::kIdVaddps, u, u, e.Constant(Const::kOne));
        e.Op(I::kIdVmulps, h[v], h[v], u);
      }
      cc.add(up, stride);
      const x86::Gp to = cc.newUIntPtr();
      cc.mov(to, out);
      cc.add(out, out_stride);
      blocks.push_back({h[2 * i], h[2 * i + 1], to});
    }
    QuantizeBlocks(e, blocks);
  });
}

void Rope(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto x0 = e.PointerArg(0), cos = e.PointerArg(1), half = e.PointerArg(2);
  const x86::Gp x1 = cc.newUIntPtr(), sin = cc.newUIntPtr();
  cc.lea(x1, x86::ptr(x0, half, 2));
  cc.lea(sin, x86::ptr(cos, half, 2));
  e.Sweep(half, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v0 = e.Load(x86::ptr(x0, at), mask), v1 = e.Load(x86::ptr(x1, at), mask);
    const Vec16 c = e.Load(x86::ptr(cos, at), mask), s = e.Load(x86::ptr(sin, at), mask);
    const Vec16 a = e.New();
    e.Op(I::kIdVmulps, a, v0, c);
    e.Op(I::kIdVfnmadd231ps, a, v1, s);
    e.Op(I::kIdVmulps, c, v1, c);
    e.Op(I::kIdVfmadd231ps, c, v0, s);
    e.Store(x86::ptr(x0, at), a, mask);
    e.Store(x86::ptr(x1, at), c, mask);
  });
}

void Add(Vec16Emitter& e) {
  const auto y = e.PointerArg(0), b = e.PointerArg(1), n = e.PointerArg(2);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(y, at), mask);
    e.Op(I::kIdVaddps, v, v, e.Load(x86::ptr(b, at), mask));
    e.Store(x86::ptr(y, at), v, mask);
  });
}

void AddScaled(Vec16Emitter& e) {
  const auto y = e.PointerArg(0), x = e.PointerArg(1);
  const auto a = e.FloatArg(2);
  const auto n = e.PointerArg(3);
  const Vec16 scale = e.Broadcast(a);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(y, at), mask);
    e.Op(I::kIdVfmadd231ps, v, scale, e.Load(x86::ptr(x, at), mask));
    e.Store(x86::ptr(y, at), v, mask);
  });
}

void Dots(Vec16Emitter& e) {
  const auto x = e.PointerArg(0), w = e.PointerArg(1), y = e.PointerArg(2);
  const auto rows = e.PointerArg(3), n = e.PointerArg(4);
  SeveralAtOnce(e, rows, 1, [&](size_t count) {
    std::vector<x86::Gp> at_once(count);
    std::vector<Vec16> sums(count);
    for (size_t i = 0; i < count; ++i) {
      at_once[i] = e.cc.newUIntPtr();
      e.cc.mov(at_once[i], w);
      e.cc.lea(w, x86::ptr(w, n, 2));
      sums[i] = e.Zero();
    }
    e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
      const Vec16 v = e.Load(x86::ptr(x, at), mask);
      // fma(0, 0, s) is s: lanes outside the mask keep their bits
      for (size_t i = 0; i < count; ++i)
        e.Op(I::kIdVfmadd231ps, sums[i], v, e.Load(x86::ptr(at_once[i], at), mask));
    });
    for (size_t i = 0; i < count; ++i) {
      e.cc.vmovss(x86::ptr(y, static_cast<int32_t>(i * sizeof(float))),
                  e.Reduce(I::kIdVaddps, sums[i]));
    }
    e.cc.add(y, count * sizeof(float));
  });
}

void Sigmoid(Vec16Emitter& e) {
  const auto x = e.PointerArg(0), n = e.PointerArg(1);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(x, at), mask), one = e.New();
    e.Op(I::kIdVxorps, v, v, e.Constant(Const::kSignMask));
    e.Exp({&v, 1});
    e.Op(I::kIdVaddps, v, v, e.Constant(Const::kOne));
    e.Op(I::kIdVmovups, one, e.Constant(Const::kOne));
    e.Op(I::kIdVdivps, v, one, v);
    e.Store(x86::ptr(x, at), v, mask);
  });
}

void AddWaves(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto scores = e.PointerArg(0), stride = e.PointerArg(1), n = e.PointerArg(2);
  const auto queries = e.PointerArg(3), terms = e.PointerArg(4), terms_stride = e.PointerArg(5);
  const auto waves = e.PointerArg(6), pairs = e.PointerArg(7);
  cc.shl(stride, 2);  // bytes
  cc.shl(terms_stride, 2);
  SeveralAtOnce(e, queries, 1, [&](size_t count) {
    std::vector<x86::Gp> rows(count), of_rows(count);
    for (size_t i = 0; i < count; ++i) {
      rows[i] = cc.newUIntPtr();
      cc.mov(rows[i], scores);
      cc.add(scores, stride);
    }
    e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
      if (mask != nullptr) return;  // never happens: n is a multiple of 16
      std::vector<Vec16> sums(count);
      for (size_t i = 0; i < count; ++i) {
        sums[i] = e.Load(x86::ptr(rows[i], at));
        of_rows[i] = cc.newUIntPtr();
        i == 0 ? cc.mov(of_rows[i], terms)
               : cc.lea(of_rows[i], x86::ptr(of_rows[i - 1], terms_stride));
      }
      const x86::Gp wave = cc.newUIntPtr(), left = cc.newUIntPtr(), table = cc.newUIntPtr();
      const asmjit::Label loop = cc.newLabel(), done = cc.newLabel();
      cc.mov(wave, waves);
      cc.mov(left, pairs);
      cc.test(left, left);
      cc.jz(done);
      cc.bind(loop);
      cc.mov(table, x86::ptr(wave));
      for (const int part : {0, 1}) {
        const Vec16 values = e.Load(
            x86::ptr(table, at, 0, part * static_cast<int>(kChunkPositions * sizeof(float))));
        for (size_t i = 0; i < count; ++i) {
          const x86::Mem term = x86::dword_ptr(of_rows[i], part * static_cast<int>(sizeof(float)));
          e.Op(I::kIdVfmadd231ps, sums[i], values, e.BroadcastOperand(term));
        }
      }
      for (size_t i = 0; i < count; ++i) cc.add(of_rows[i], 2 * sizeof(float));
      cc.add(wave, sizeof(float*));
      cc.dec(left);
      cc.jnz(loop);
      cc.bind(done);
      for (size_t i = 0; i < count; ++i) e.Store(x86::ptr(rows[i], at), sums[i]);
    });
    for (size_t i = 0; i < count; ++i) cc.add(terms, terms_stride);
  });
}

void Cap(Vec16Emitter& e) {
  const auto x = e.PointerArg(0), n = e.PointerArg(1);
  const auto c = e.FloatArg(2);
  const x86::Xmm two_c = e.cc.newXmm(), inverse = e.cc.newXmm();
  e.cc.vaddss(two_c, c, c);
  e.cc.vmovss(inverse, e.XmmConst(Const::kOne));
  e.cc.vaddss(inverse, inverse, inverse);
  e.cc.vdivss(inverse, inverse, c);
  const Vec16 cap = e.Broadcast(c), range = e.Broadcast(two_c), scale = e.Broadcast(inverse);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(x, at), mask), share = e.New(), result = e.New();
    e.Op(I::kIdVmulps, v, v, scale);
    e.Exp({&v, 1});
    e.Op(I::kIdVaddps, v, v, e.Constant(Const::kOne));
    e.Op(I::kIdVdivps, share, range, v);
    e.Op(I::kIdVsubps, result, cap, share);
    e.Store(x86::ptr(x, at), result, mask);
  });
}

// The rows of `count` queries at once: a row's two reductions are latency, in which another's
// vectors fit.
void SoftmaxRows(Vec16Emitter& e, size_t count, const x86::Gp& scores, const x86::Gp& stride,
                 const x86::Gp& first, const x86::Gp& valid, const x86::Gp& padded,
                 const x86::Gp& max_out, const x86::Gp& sum_out) {
  x86::Compiler& cc = e.cc;
  struct Row {
    x86::Gp at;
    Vec16 largest, max, sums;
  };
  std::vector<Row> rows(count);
  for (size_t i = 0; i < count; ++i) {
    rows[i] = {cc.newUIntPtr(), e.New(), {}, e.Zero()};
    if (i == 0) {
      cc.mov(rows[i].at, scores);
    } else {
      cc.lea(rows[i].at, x86::ptr(rows[i - 1].at, stride));
    }
    e.Op(I::kIdVmovups, rows[i].largest, e.Constant(Const::kMinusInfinity));
  }
  // What is minus infinity is no maximum, and Exp makes +0 of it.
  e.Sweep(first, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 hidden = e.New();
    e.Op(I::kIdVmovups, hidden, e.Constant(Const::kMinusInfinity));
    for (const Row& row : rows) e.Store(x86::ptr(row.at, at), hidden, mask);
  });
  e.Sweep(valid, [&](const x86::Gp& at, const Mask16* mask) {
    for (Row& row : rows) {
      const Vec16 v = e.Load(x86::ptr(row.at, at), mask);
      if (mask != nullptr) e.Select(v, *mask, row.largest);
      e.Op(I::kIdVmaxps, row.largest, row.largest, v);
    }
  });
  const x86::Xmm zero = cc.newXmm();
  cc.vxorps(zero, zero, zero);
  for (size_t i = 0; i < count; ++i) {
    const x86::Xmm max = e.Reduce(I::kIdVmaxps, rows[i].largest);
    cc.vaddss(max, max, zero);  // which of two zeros is the maximum depends on the order: make it
                                // +0
    cc.vmovss(x86::ptr(max_out, static_cast<int32_t>(i * sizeof(float))), max);
    rows[i].max = e.Broadcast(max);
  }
  const Vec16 nothing = e.Zero();
  e.Sweep(valid, [&](const x86::Gp& at, const Mask16* mask) {
    std::vector<Vec16> v;
    for (const Row& row : rows) {
      v.push_back(e.Load(x86::ptr(row.at, at), mask));
      e.Op(I::kIdVsubps, v.back(), v.back(), row.max);
    }
    e.Exp(v);
    for (size_t i = 0; i < count; ++i) {
      if (mask != nullptr) e.Select(v[i], *mask, nothing);
      e.Op(I::kIdVaddps, rows[i].sums, rows[i].sums, v[i]);
      e.Store(x86::ptr(rows[i].at, at), v[i]);
    }
  });
  for (size_t i = 0; i < count; ++i) {
    cc.vmovss(x86::ptr(sum_out, static_cast<int32_t>(i * sizeof(float))),
              e.Reduce(I::kIdVaddps, rows[i].sums));
  }
  // Zeros the vectors after the last valid score.
  const asmjit::Label loop = cc.newLabel(), done = cc.newLabel();
  const x86::Gp rest = cc.newUIntPtr();
  cc.lea(rest, x86::ptr(valid, 15));
  cc.and_(rest, -16);
  cc.cmp(rest, padded);
  cc.jae(done);
  cc.bind(loop);
  for (Row& row : rows) e.Store(x86::ptr(row.at, rest, 2), nothing);
  cc.add(rest, 16);
  cc.cmp(rest, padded);
  cc.jb(loop);
  cc.bind(done);
}

void SoftmaxChunk(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto scores = e.PointerArg(0), stride = e.PointerArg(1), queries = e.PointerArg(2);
  const auto first = e.PointerArg(3), valid = e.PointerArg(4), padded = e.PointerArg(5);
  const auto max = e.PointerArg(6), sum = e.PointerArg(7);
  cc.shl(stride, 2);  // bytes
  SeveralAtOnce(e, queries, 1, [&](size_t count) {
    SoftmaxRows(e, count, scores, stride, first, valid, padded, max, sum);
    for (size_t i = 0; i < count; ++i) cc.add(scores, stride);
    cc.add(max, count * sizeof(float));
    cc.add(sum, count * sizeof(float));
  });
}

// Quantises one page for `count` queries at once, since a block is one long chain of latencies.
void QuantizePage(Vec16Emitter& e, size_t count, const Vec16& low_scale, const Vec16& high_scale,
                  const x86::Gp& from, const x86::Gp& stride, const x86::Gp& q, const x86::Gp& d) {
  x86::Compiler& cc = e.cc;
  constexpr auto kRow = static_cast<int32_t>(sizeof(ChunkWeights));
  struct Row {
    Vec16 low, high, scale;
    x86::Xmm amax, d, inverse;
  };
  std::vector<Row> rows(count);
  const Vec16 zero = e.Zero();
  for (Row& row : rows) {
    row.low = e.New();
    row.high = e.New();
    e.Op(I::kIdVmulps, row.low, low_scale, x86::ptr(from));
    e.Op(I::kIdVmulps, row.high, high_scale, x86::ptr(from, 64));
    cc.add(from, stride);
  }
  for (Row& row : rows) {
    e.Op(I::kIdVmaxps, row.low, row.low, zero);  // NaN gives the second operand
    e.Op(I::kIdVmaxps, row.high, row.high, zero);
    row.scale = e.New();
    e.Op(I::kIdVmaxps, row.scale, row.low, row.high);
  }
  for (Row& row : rows) row.amax = e.Reduce(I::kIdVmaxps, row.scale);
  for (Row& row : rows) {
    row.d = cc.newXmm();
    row.inverse = cc.newXmm();
    cc.vmulss(row.d, row.amax, e.XmmConst(Const::kInverseWeightMax));
    cc.vmovss(row.inverse, e.XmmConst(Const::kWeightMax));
    cc.vdivss(row.inverse, row.inverse, row.amax);
  }
  for (Row& row : rows) {
    ZeroIfNearZero(e, row.amax, {row.d, row.inverse});
    row.scale = e.Broadcast(row.inverse);
  }
  for (Row& row : rows) {
    for (const Vec16* v : {&row.low, &row.high}) {
      e.Op(I::kIdVmulps, *v, *v, row.scale);
      e.Op(I::kIdVminps, *v, *v, e.Constant(Const::kWeightMax));
      e.Op(I::kIdVcvtps2dq, *v, *v);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int32_t>(i) * kRow;
    cc.vmovups(x86::ptr(q, at),
               e.ToBytes(rows[i].low, rows[i].high, Vec16Emitter::Bytes::kUnsigned));
    cc.vmovss(x86::ptr(d, at), rows[i].d);
  }
}

void QuantizeWeights(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto p = e.PointerArg(0), stride = e.PointerArg(1), page = e.PointerArg(2);
  const auto page_bytes = e.PointerArg(3), out = e.PointerArg(4), pages = e.PointerArg(5);
  const auto queries = e.PointerArg(6);
  const x86::Gp d_at = cc.newUIntPtr();
  const asmjit::Label page_loop = cc.newLabel(), done = cc.newLabel();
  cc.shl(stride, 2);  // bytes
  cc.lea(d_at, x86::ptr(out, offsetof(ChunkWeights, d)));
  cc.test(pages, pages);
  cc.jz(done);
  cc.bind(page_loop);
  const Vec16 low = e.HalvesToFloats(x86::ptr(page)), high = e.HalvesToFloats(x86::ptr(page, 32));
  const x86::Gp from = cc.newUIntPtr(), q = cc.newUIntPtr(), d = cc.newUIntPtr();
  const x86::Gp left = cc.newUIntPtr();
  cc.mov(from, p);
  cc.mov(q, out);
  cc.mov(d, d_at);
  cc.mov(left, queries);
  SeveralAtOnce(e, left, 1, [&](size_t count) {
    QuantizePage(e, count, low, high, from, stride, q, d);
    cc.add(q, count * sizeof(ChunkWeights));
    cc.add(d, count * sizeof(ChunkWeights));
  });
  cc.add(p, kValuePagePositions * sizeof(float));
  cc.add(out, kValuePagePositions);
  cc.add(d_at, sizeof(float));
  cc.add(page, page_bytes);
  cc.dec(pages);
  cc.jnz(page_loop);
  cc.bind(done);
}

void Merge(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto o = e.PointerArg(0), m_at = e.PointerArg(1), l_at = e.PointerArg(2),
             oc = e.PointerArg(3);
  const auto mc = e.FloatArg(4), lc = e.FloatArg(5);
  const auto n = e.PointerArg(6);
  const x86::Xmm m = cc.newXmm(), mn = cc.newXmm(), zero = cc.newXmm(), pair = cc.newXmm();
  cc.vmovss(m, x86::ptr(m_at));
  cc.vmaxss(mn, m, mc);
  cc.vxorps(zero, zero, zero);
  cc.vaddss(mn, mn, zero);
  cc.vmovss(x86::ptr(m_at), mn);
  cc.vunpcklps(pair, m, mc);
  const Vec16 factors = e.BroadcastPair(pair);
  e.Op(I::kIdVsubps, factors, factors, e.Broadcast(mn));
  e.Exp({&factors, 1});  // a, b, a, b, ...
  const x86::Xmm a0 = cc.newXmm(), b0 = cc.newXmm(), l = cc.newXmm();
  cc.vmovaps(a0, factors.part[0].xmm());
  cc.vpermilps(b0, a0, 0b0001);
  const Vec16 a = e.Broadcast(a0), b = e.Broadcast(b0);
  cc.vmulss(b0, b0, lc);
  cc.vmovss(l, x86::ptr(l_at));
  cc.vfmadd213ss(l, a0, b0);
  cc.vmovss(x86::ptr(l_at), l);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(o, at), mask), add = e.Load(x86::ptr(oc, at), mask);
    e.Op(I::kIdVmulps, add, add, b);
    e.Op(I::kIdVfmadd213ps, v, a, add);
    e.Store(x86::ptr(o, at), v, mask);
  });
}

void AddSinks(Vec16Emitter& e) {
  const auto l = e.PointerArg(0), m = e.PointerArg(1), sink = e.PointerArg(2);
  const auto n = e.PointerArg(3);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(sink, at), mask), sum = e.Load(x86::ptr(l, at), mask);
    e.Op(I::kIdVsubps, v, v, e.Load(x86::ptr(m, at), mask));
    e.Exp({&v, 1});
    e.Op(I::kIdVaddps, sum, sum, v);
    e.Store(x86::ptr(l, at), sum, mask);
  });
}

void LargestOf16(Vec16Emitter& e) {
  x86::Compiler& cc = e.cc;
  const auto x = e.PointerArg(0), out = e.PointerArg(1), panels = e.PointerArg(2);
  SeveralAtOnce(e, panels, 1, [&](size_t count) {
    std::vector<Vec16> v;
    for (size_t i = 0; i < count; ++i)
      v.push_back(e.Load(x86::ptr(x, static_cast<int32_t>(i * 16 * sizeof(float)))));
    for (size_t i = 0; i < count; ++i) {
      cc.vmovss(x86::ptr(out, static_cast<int32_t>(i * sizeof(float))),
                e.Reduce(I::kIdVmaxps, v[i]));
    }
    cc.add(x, count * 16 * sizeof(float));
    cc.add(out, count * sizeof(float));
  });
}

void Finish(Vec16Emitter& e) {
  const auto o = e.PointerArg(0);
  const auto l = e.FloatArg(1);
  const auto out = e.PointerArg(2), n = e.PointerArg(3);
  const x86::Xmm r = e.cc.newXmm();
  e.cc.vmovss(r, e.XmmConst(Const::kOne));
  e.cc.vdivss(r, r, l);
  const Vec16 scale = e.Broadcast(r);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(o, at), mask);
    e.Op(I::kIdVmulps, v, v, scale);
    e.Store(x86::ptr(out, at), v, mask);
  });
}

}  // namespace

Elementwise GenerateElementwise(Isa isa) {
  Elementwise set = {};
  set.isa = isa;
  GenerateVec16("rms_norms", isa, &set.rms_norms, [](Vec16Emitter& e) { Norms(e, false); });
  GenerateVec16("layer_norms", isa, &set.layer_norms, [](Vec16Emitter& e) { Norms(e, true); });
  GenerateVec16("quantize", isa, &set.quantize, Quantize);
  GenerateVec16("quantize_hadamard", isa, &set.quantize_hadamard, QuantizeHadamard);
  GenerateVec16("quantize_row", isa, &set.quantize_row, QuantizeRow);
  const auto generate = [&](std::string_view name, Gate gate) {
    GenerateVec16(name, isa, &set.gate_quantize[static_cast<size_t>(gate)],
                  [&](Vec16Emitter& e) { GateQuantize(e, gate); });
  };
  generate("swiglu_quantize", Gate::kSilu);
  generate("geglu_quantize", Gate::kGeluTanh);
  generate("clamped_gate_quantize", Gate::kClamped);
  generate("reglu_quantize", Gate::kRelu);
  GenerateVec16("rope", isa, &set.rope, Rope);
  GenerateVec16("add", isa, &set.add, Add);
  GenerateVec16("add_scaled", isa, &set.add_scaled, AddScaled);
  GenerateVec16("dots", isa, &set.dots, Dots);
  GenerateVec16("sigmoid", isa, &set.sigmoid, Sigmoid);
  GenerateVec16("add_waves", isa, &set.add_waves, AddWaves);
  GenerateVec16("cap", isa, &set.cap, Cap);
  GenerateVec16("softmax_chunk", isa, &set.softmax_chunk, SoftmaxChunk);
  GenerateVec16("quantize_weights", isa, &set.quantize_weights, QuantizeWeights);
  GenerateVec16("merge", isa, &set.merge, Merge);
  GenerateVec16("add_sinks", isa, &set.add_sinks, AddSinks);
  GenerateVec16("largest_of_16", isa, &set.largest_of_16, LargestOf16);
  GenerateVec16("finish", isa, &set.finish, Finish);
  return set;
}

}  // namespace larder::kernels::rows
