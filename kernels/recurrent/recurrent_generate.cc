// The kernels for AVX2 and AVX-512, each written once for 16 lanes (kernels/jit/vec16.h).
// reference.cc says what they compute.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/jit/vec16.h"
#include "kernels/recurrent/recurrent_sets.h"

namespace larder::kernels::inline recurrent {
namespace {

namespace I = x86::Inst;

constexpr auto kFloat = static_cast<int32_t>(sizeof(float));

// A constant in every lane, in a register.
Vec16 Value(Vec16Emitter& e, float value) {
  const x86::Gp bits = e.cc.newUInt32();
  const x86::Xmm scalar = e.cc.newXmm();
  e.cc.mov(bits, std::bit_cast<uint32_t>(value));
  e.cc.vmovd(scalar, bits);
  return e.Broadcast(scalar);
}

// 1 + Exp(-x), for each of the vectors, whose values stay.
std::vector<Vec16> OnePlusExpOfMinus(Vec16Emitter& e, const std::vector<Vec16>& xs) {
  std::vector<Vec16> out;
  for (const Vec16& x : xs) {
    out.push_back(e.New());
    e.Op(I::kIdVxorps, out.back(), x, e.Constant(Const::kSignMask));
  }
  e.Exp(out);
  for (const Vec16& v : out) e.Op(I::kIdVaddps, v, v, e.Constant(Const::kOne));
  return out;
}

void Convolve(Vec16Emitter& e, bool biased, bool silu) {
  x86::Compiler& cc = e.cc;
  const auto inputs = e.PointerArg(0), w = e.PointerArg(1), taps = e.PointerArg(2);
  const auto y = e.PointerArg(3), y_stride = e.PointerArg(4), tokens = e.PointerArg(5);
  const auto n = e.PointerArg(6);
  const asmjit::Label token = cc.newLabel(), done = cc.newLabel();
  const x86::Gp w_stride = cc.newUIntPtr();
  cc.lea(w_stride, x86::ptr(0, n, 2));
  cc.shl(y_stride, 2);  // bytes
  cc.test(tokens, tokens);
  cc.jz(done);
  cc.bind(token);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const x86::Gp row = cc.newUIntPtr(), rows = cc.newUIntPtr(), weights = cc.newUIntPtr();
    const x86::Gp left = cc.newUIntPtr();
    const asmjit::Label tap = cc.newLabel(), summed = cc.newLabel();
    cc.mov(row, x86::ptr(inputs));
    cc.mov(rows, inputs);
    cc.mov(weights, w);
    cc.mov(left, taps);
    const Vec16 s = e.Load(x86::ptr(weights, at), mask);
    e.Op(I::kIdVmulps, s, s, e.Load(x86::ptr(row, at), mask));
    cc.bind(tap);
    cc.dec(left);
    cc.jz(summed);
    cc.add(rows, sizeof(float*));
    cc.add(weights, w_stride);
    cc.mov(row, x86::ptr(rows));
    const Vec16 weight = e.Load(x86::ptr(weights, at), mask);
    e.Op(I::kIdVfmadd231ps, s, weight, e.Load(x86::ptr(row, at), mask));
    cc.jmp(tap);
    cc.bind(summed);
    if (biased) {
      cc.add(weights, w_stride);
      e.Op(I::kIdVaddps, s, s, e.Load(x86::ptr(weights, at), mask));
    }
    if (silu) e.Op(I::kIdVdivps, s, s, OnePlusExpOfMinus(e, {s})[0]);
    e.Store(x86::ptr(y, at), s, mask);
  });
  cc.add(inputs, sizeof(float*));
  cc.add(y, y_stride);
  cc.dec(tokens);
  cc.jnz(token);
  cc.bind(done);
}

// x = softplus(x).
void Softplus(Vec16Emitter& e, const Vec16& x, const Vec16& zero, const Vec16& two) {
  const Vec16 z = e.New(), square = e.New();
  e.Op(I::kIdVandps, z, x, e.Constant(Const::kAbsMask));
  e.Op(I::kIdVxorps, z, z, e.Constant(Const::kSignMask));
  e.Exp({&z, 1});
  e.Op(I::kIdVaddps, square, two, z);
  e.Op(I::kIdVdivps, z, z, square);
  e.Op(I::kIdVmulps, square, z, z);
  const Vec16 series = Value(e, kAreaTangent[0]);
  for (size_t i = 1; i < std::size(kAreaTangent); ++i)
    e.Op(I::kIdVfmadd213ps, series, square, Value(e, kAreaTangent[i]));
  e.Op(I::kIdVaddps, z, z, z);
  e.Op(I::kIdVmulps, z, z, series);
  e.Op(I::kIdVmaxps, x, x, zero);  // NaN and zeros give the second operand
  e.Op(I::kIdVaddps, x, x, z);
}

void DeltaGates(Vec16Emitter& e) {
  const auto alpha = e.PointerArg(0), beta = e.PointerArg(1);
  const auto a = e.FloatArg(2), bias = e.FloatArg(3);
  const auto decays = e.PointerArg(4), rates = e.PointerArg(5), n = e.PointerArg(6);
  const Vec16 factor = e.Broadcast(a), offset = e.Broadcast(bias), zero = e.Zero();
  const Vec16 two = Value(e, 2.0f);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 x = e.Load(x86::ptr(alpha, at), mask);
    e.Op(I::kIdVaddps, x, x, offset);
    Softplus(e, x, zero, two);
    e.Op(I::kIdVmulps, x, factor, x);
    e.Exp({&x, 1});
    e.Store(x86::ptr(decays, at), x, mask);
    const Vec16 sum = OnePlusExpOfMinus(e, {e.Load(x86::ptr(beta, at), mask)})[0], one = e.New();
    e.Op(I::kIdVmovups, one, e.Constant(Const::kOne));
    e.Op(I::kIdVdivps, one, one, sum);
    e.Store(x86::ptr(rates, at), one, mask);
  });
}

// The columns that are in registers at once: AVX2 has no more.
struct Columns {
  std::vector<Vec16> v;
  explicit Columns(Vec16Emitter& e) {
    for (int i = 0; i < (e.avx512() ? 2 : 1); ++i) v.push_back(e.New());
  }
  void Clear(Vec16Emitter& e) const {
    for (const Vec16& of : v) e.Op(I::kIdVxorps, of, of, of);
  }
  void AddTo(Vec16Emitter& e, const Columns& sum) const {
    for (size_t i = 0; i < v.size(); ++i) e.Op(I::kIdVaddps, sum.v[i], sum.v[i], v[i]);
  }
};

class DeltaRuleEmitter {
 public:
  DeltaRuleEmitter(Vec16Emitter& emitter, const x86::Gp& argument)
      : e(emitter),
        cc(emitter.cc),
        run(argument),
        u(e),
        p{Columns(e), Columns(e)},
        o{Columns(e), Columns(e)} {}

  // The columns from byte `first` on.
  void Emit(int32_t first) {
    state = Load(offsetof(DeltaRun, state));
    key = Load(offsetof(DeltaRun, keys));
    query = Load(offsetof(DeltaRun, queries));
    value = Load(offsetof(DeltaRun, values));
    out = Load(offsetof(DeltaRun, out));
    scale = Load(offsetof(DeltaRun, scales));
    rate = Load(offsetof(DeltaRun, rates));
    tokens = Load(offsetof(DeltaRun, tokens));
    key_bytes = Load(offsetof(DeltaRun, key_size));
    cc.shl(key_bytes, 2);
    for (const x86::Gp& of : {state, value, out}) cc.add(of, first);
    Begin();
    const asmjit::Label token = cc.newLabel(), last = cc.newLabel(), end = cc.newLabel();
    cc.bind(token);
    MakeUpdate();
    next_key = cc.newUIntPtr();
    cc.mov(next_key, Field(offsetof(DeltaRun, key_stride)));
    cc.lea(next_key, x86::ptr(key, next_key, 2));
    cc.cmp(tokens, 1);
    cc.je(last);
    Update(true);
    Finish();
    Advance();
    cc.jmp(token);
    cc.bind(last);
    Update(false);
    Finish();
    cc.bind(end);
  }

 private:
  static constexpr int32_t kRowBytes = kStateColumns * kFloat;

  x86::Mem Field(size_t offset) const { return x86::ptr(run, static_cast<int32_t>(offset)); }
  x86::Gp Load(size_t offset) const {
    const x86::Gp field = cc.newUIntPtr();
    cc.mov(field, Field(offset));
    return field;
  }

  // body(row of the state, the row's number in bytes of a float beside `at`), four rows to a turn.
  template <typename Body>
  void EachRow(Body body) {
    const x86::Gp at = cc.newUIntPtr(), row = cc.newUIntPtr();
    const asmjit::Label loop = cc.newLabel();
    cc.xor_(at.r32(), at.r32());
    cc.mov(row, state);
    cc.bind(loop);
    for (size_t i = 0; i < kStateRows; ++i)
      body(i, row, static_cast<int32_t>(i) * kRowBytes, at, static_cast<int32_t>(i) * kFloat);
    cc.add(row, static_cast<int32_t>(kStateRows) * kRowBytes);
    cc.add(at, static_cast<int32_t>(kStateRows) * kFloat);
    cc.cmp(at, key_bytes);
    cc.jb(loop);
  }

  // T *= first; p of the first key.
  void Begin() {
    const Vec16 first = e.Broadcast(Field(offsetof(DeltaRun, first)));
    for (const Columns& sums : p) sums.Clear(e);
    EachRow([&](size_t i, const x86::Gp& row, int32_t in_row, const x86::Gp& at, int32_t in_key) {
      const Vec16 k = e.Broadcast(x86::ptr(key, at, 0, in_key));
      for (size_t c = 0; c < u.v.size(); ++c) {
        const x86::Mem place = x86::ptr(row, in_row + static_cast<int32_t>(c) * 64);
        const Vec16 t = e.Load(place);
        e.Op(I::kIdVmulps, t, t, first);
        e.Store(place, t);
        e.Op(I::kIdVfmadd231ps, p[i % 2].v[c], t, k);
      }
    });
  }

  void MakeUpdate() {
    p[1].AddTo(e, p[0]);
    const Vec16 of_scale = e.Broadcast(x86::ptr(scale)), of_rate = e.Broadcast(x86::ptr(rate));
    for (size_t c = 0; c < u.v.size(); ++c) {
      e.Op(I::kIdVmovups, u.v[c], x86::ptr(value, static_cast<int32_t>(c) * 64));
      e.Op(I::kIdVfnmadd231ps, u.v[c], of_scale, p[0].v[c]);
      e.Op(I::kIdVmulps, u.v[c], u.v[c], of_rate);
    }
  }

  // T += k u^T; o of the query and, if another token follows, p of its key.
  void Update(bool more) {
    for (const Columns& sums : o) sums.Clear(e);
    if (more) {
      for (const Columns& sums : p) sums.Clear(e);
    }
    EachRow([&](size_t i, const x86::Gp& row, int32_t in_row, const x86::Gp& at, int32_t in_key) {
      std::vector<Vec16> t;
      for (size_t c = 0; c < u.v.size(); ++c)
        t.push_back(e.Load(x86::ptr(row, in_row + static_cast<int32_t>(c) * 64)));
      const Vec16 k = e.Broadcast(x86::ptr(key, at, 0, in_key));
      for (size_t c = 0; c < u.v.size(); ++c) {
        e.Op(I::kIdVfmadd231ps, t[c], k, u.v[c]);
        e.Store(x86::ptr(row, in_row + static_cast<int32_t>(c) * 64), t[c]);
      }
      const Vec16 q = e.Broadcast(x86::ptr(query, at, 0, in_key));
      for (size_t c = 0; c < u.v.size(); ++c) e.Op(I::kIdVfmadd231ps, o[i % 2].v[c], t[c], q);
      if (!more) return;
      const Vec16 next = e.Broadcast(x86::ptr(next_key, at, 0, in_key));
      for (size_t c = 0; c < u.v.size(); ++c) e.Op(I::kIdVfmadd231ps, p[i % 2].v[c], t[c], next);
    });
  }

  void Finish() {
    o[1].AddTo(e, o[0]);
    const Vec16 of_scale = e.Broadcast(x86::ptr(scale));
    for (size_t c = 0; c < u.v.size(); ++c) {
      e.Op(I::kIdVmulps, o[0].v[c], o[0].v[c], of_scale);
      e.Store(x86::ptr(out, static_cast<int32_t>(c) * 64), o[0].v[c]);
    }
  }

  void Advance() {
    const x86::Gp stride = cc.newUIntPtr();
    cc.mov(key, next_key);
    cc.mov(stride, Field(offsetof(DeltaRun, key_stride)));
    cc.lea(query, x86::ptr(query, stride, 2));
    cc.mov(stride, Field(offsetof(DeltaRun, value_stride)));
    cc.lea(value, x86::ptr(value, stride, 2));
    cc.mov(stride, Field(offsetof(DeltaRun, out_stride)));
    cc.lea(out, x86::ptr(out, stride, 2));
    cc.add(scale, kFloat);
    cc.add(rate, kFloat);
    cc.dec(tokens);
  }

  Vec16Emitter& e;
  x86::Compiler& cc;
  const x86::Gp run;
  x86::Gp state, key, query, value, out, scale, rate, tokens, key_bytes, next_key;
  Columns u;
  std::array<Columns, 2> p, o;  // sums of even rows and of odd ones
};

void DeltaRule(Vec16Emitter& e) {
  const x86::Gp run = e.PointerArg(0);
  for (int32_t first = 0; first < static_cast<int32_t>(kStateColumns) * kFloat;
       first += e.avx512() ? 128 : 64)
    DeltaRuleEmitter(e, run).Emit(first);
}

void MambaGates(Vec16Emitter& e) {
  const auto alpha = e.PointerArg(0);
  const auto a = e.FloatArg(1), bias = e.FloatArg(2);
  const auto decays = e.PointerArg(3), steps = e.PointerArg(4), n = e.PointerArg(5);
  const Vec16 factor = e.Broadcast(a), offset = e.Broadcast(bias), zero = e.Zero();
  const Vec16 two = Value(e, 2.0f);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 x = e.Load(x86::ptr(alpha, at), mask);
    e.Op(I::kIdVaddps, x, x, offset);
    Softplus(e, x, zero, two);
    e.Store(x86::ptr(steps, at), x, mask);
    e.Op(I::kIdVmulps, x, factor, x);
    e.Exp({&x, 1});
    e.Store(x86::ptr(decays, at), x, mask);
  });
}

// Tokens in blocks: a row of the state is loaded and stored once for all of a block.
class MambaEmitter {
 public:
  MambaEmitter(Vec16Emitter& emitter, const x86::Gp& argument)
      : e(emitter), cc(emitter.cc), run(argument) {}

  void Emit() {
    state = Load(offsetof(MambaRun, state));
    in = Load(offsetof(MambaRun, inputs));
    to = Load(offsetof(MambaRun, outputs));
    value = Load(offsetof(MambaRun, values));
    out = Load(offsetof(MambaRun, out));
    decay = Load(offsetof(MambaRun, decays));
    step = Load(offsetof(MambaRun, steps));
    tokens = Load(offsetof(MambaRun, tokens));
    strides[1] = Load(offsetof(MambaRun, stride));
    cc.shl(strides[1], 2);  // bytes
    strides[3] = cc.newUIntPtr();
    cc.lea(strides[3], x86::ptr(strides[1], strides[1], 1));  // [a + 2 a]
    const asmjit::Label one = cc.newLabel(), done = cc.newLabel();
    if (e.avx512()) {  // AVX2 has too few registers
      const asmjit::Label block = cc.newLabel();
      cc.bind(block);
      cc.cmp(tokens, kAtOnce);
      cc.jb(one);
      Block(kAtOnce);
      cc.jmp(block);
    }
    cc.bind(one);
    cc.test(tokens, tokens);
    cc.jz(done);
    Block(1);
    cc.jmp(one);
    cc.bind(done);
  }

 private:
  static constexpr size_t kAtOnce = 4;
  static constexpr int32_t kRowBytes = static_cast<int32_t>(kMambaColumns) * kFloat;

  x86::Mem Field(size_t offset) const { return x86::ptr(run, static_cast<int32_t>(offset)); }
  x86::Gp Load(size_t offset) {
    const x86::Gp value_of = cc.newUIntPtr();
    cc.mov(value_of, Field(offset));
    return value_of;
  }
  // A float of the block's token t, at `offset` bytes of its row.
  x86::Mem Of(const x86::Gp& rows, size_t t, int32_t offset) const {
    if (t == 0) return x86::ptr(rows, offset);
    return x86::ptr(rows, strides[t == 3 ? 3 : 1], t == 2 ? 1 : 0, offset);
  }

  void Block(size_t count) {
    struct Token {
      Vec16 u, decay, y[2];
    };
    std::vector<Token> block;
    const x86::Gp x = cc.newUIntPtr(), x_stride = Load(offsetof(MambaRun, value_stride));
    cc.mov(x, value);
    for (size_t t = 0; t < count; ++t) {
      const auto at = static_cast<int32_t>(t) * kFloat;
      Token& token = block.emplace_back();
      token.u = e.Load(x86::ptr(x));
      e.Op(I::kIdVmulps, token.u, token.u, e.Broadcast(x86::ptr(step, at)));
      token.decay = e.Broadcast(x86::ptr(decay, at));
      token.y[0] = e.Zero();
      token.y[1] = e.Zero();
      cc.lea(x, x86::ptr(x, x_stride, 2));
    }
    const x86::Gp row = cc.newUIntPtr(), left = Load(offsetof(MambaRun, state_size));
    const x86::Gp b = cc.newUIntPtr(), c = cc.newUIntPtr();
    const asmjit::Label loop = cc.newLabel();
    cc.mov(row, state);
    cc.mov(b, in);
    cc.mov(c, to);
    cc.bind(loop);
    for (size_t i = 0; i < kStateRows; ++i) {
      const auto in_row = static_cast<int32_t>(i) * kFloat;
      const x86::Mem place = x86::ptr(row, static_cast<int32_t>(i) * kRowBytes);
      const Vec16 s = e.Load(place);
      for (size_t t = 0; t < count; ++t) {
        e.Op(I::kIdVmulps, s, s, block[t].decay);
        e.Op(I::kIdVfmadd231ps, s, block[t].u, e.BroadcastOperand(Of(b, t, in_row)));
        e.Op(I::kIdVfmadd231ps, block[t].y[i % 2], s, e.BroadcastOperand(Of(c, t, in_row)));
      }
      e.Store(place, s);
    }
    cc.add(row, static_cast<int32_t>(kStateRows) * kRowBytes);
    cc.add(b, static_cast<int32_t>(kStateRows) * kFloat);
    cc.add(c, static_cast<int32_t>(kStateRows) * kFloat);
    cc.sub(left, kStateRows);
    cc.jnz(loop);
    const x86::Gp out_stride = Load(offsetof(MambaRun, out_stride));
    const Vec16 skip = e.Broadcast(Field(offsetof(MambaRun, skip)));
    for (const Token& token : block) {
      e.Op(I::kIdVaddps, token.y[0], token.y[0], token.y[1]);
      e.Op(I::kIdVfmadd231ps, token.y[0], skip, x86::ptr(value));
      e.Store(x86::ptr(out), token.y[0]);
      cc.lea(value, x86::ptr(value, x_stride, 2));
      cc.lea(out, x86::ptr(out, out_stride, 2));
    }
    for (const x86::Gp& rows : {in, to}) {
      const x86::Gp stride = strides[1];
      for (size_t t = 0; t < count; ++t) cc.add(rows, stride);
    }
    cc.add(decay, static_cast<int32_t>(count) * kFloat);
    cc.add(step, static_cast<int32_t>(count) * kFloat);
    cc.sub(tokens, count);
  }

  Vec16Emitter& e;
  x86::Compiler& cc;
  const x86::Gp run;
  x86::Gp state, in, to, value, out, decay, step, tokens;
  x86::Gp strides[4];  // [t]: bytes of t rows of B and C; those of 1 and 3 are there
};

// y[i] = y[i] * gate / (1 + Exp(-gate)), in the order of the reference.
void Gate(Vec16Emitter& e, bool silu) {
  const auto y = e.PointerArg(0), gate = e.PointerArg(1), n = e.PointerArg(2);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 g = e.Load(x86::ptr(gate, at), mask), v = e.Load(x86::ptr(y, at), mask);
    const Vec16 sum = OnePlusExpOfMinus(e, {g})[0];
    if (silu) {
      e.Op(I::kIdVdivps, g, g, sum);
      e.Op(I::kIdVmulps, v, v, g);
    } else {
      e.Op(I::kIdVdivps, v, v, sum);
    }
    e.Store(x86::ptr(y, at), v, mask);
  });
}

void Multiply(Vec16Emitter& e) {
  const auto a = e.PointerArg(0), b = e.PointerArg(1), y = e.PointerArg(2), n = e.PointerArg(3);
  e.Sweep(n, [&](const x86::Gp& at, const Mask16* mask) {
    const Vec16 v = e.Load(x86::ptr(a, at), mask);
    e.Op(I::kIdVmulps, v, v, e.Load(x86::ptr(b, at), mask));
    e.Store(x86::ptr(y, at), v, mask);
  });
}

}  // namespace

Recurrent GenerateRecurrent(Isa isa) {
  Recurrent set = {};
  set.isa = isa;
  GenerateVec16("convolve", isa, &set.convolve, [](Vec16Emitter& e) { Convolve(e, false, true); });
  GenerateVec16("convolve_biased", isa, &set.convolve_biased,
                [](Vec16Emitter& e) { Convolve(e, true, true); });
  GenerateVec16("convolve_alone", isa, &set.convolve_alone,
                [](Vec16Emitter& e) { Convolve(e, false, false); });
  GenerateVec16("delta_gates", isa, &set.delta_gates, DeltaGates);
  GenerateVec16("delta_rule", isa, &set.delta_rule, DeltaRule);
  GenerateVec16("mamba_gates", isa, &set.mamba_gates, MambaGates);
  GenerateVec16("mamba2", isa, &set.mamba2,
                [](Vec16Emitter& e) { MambaEmitter(e, e.PointerArg(0)).Emit(); });
  GenerateVec16("silu_gate", isa, &set.silu_gate, [](Vec16Emitter& e) { Gate(e, true); });
  GenerateVec16("sigmoid_gate", isa, &set.sigmoid_gate, [](Vec16Emitter& e) { Gate(e, false); });
  GenerateVec16("multiply", isa, &set.multiply, Multiply);
  return set;
}

}  // namespace larder::kernels::recurrent
