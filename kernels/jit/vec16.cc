#include "kernels/jit/vec16.h"

#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "kernels/formats/act_block.h"
#include "kernels/formats/numerics.h"

namespace larder::kernels::inline jit {
namespace {

namespace I = x86::Inst;

struct alignas(64) Lanes {
  std::array<uint32_t, 16> bits;
};
using ConstantTable = std::array<Lanes, static_cast<size_t>(Const::kCount)>;

// Static, because the generated code contains its address.
constinit const ConstantTable kConstants = [] {
  ConstantTable table = {};
  const auto set_bits = [&](Const c, uint32_t bits) {
    table[static_cast<size_t>(c)].bits.fill(bits);
  };
  const auto set = [&](Const c, float value) { set_bits(c, std::bit_cast<uint32_t>(value)); };
  set(Const::kOne, 1.0f);
  set(Const::kLog2E, numerics::kLog2E);
  set(Const::kNegLn2High, -numerics::kLn2High);
  set(Const::kNegLn2Low, -numerics::kLn2Low);
  set(Const::kExpC2, numerics::kExpC2);
  set(Const::kExpC3, numerics::kExpC3);
  set(Const::kExpC4, numerics::kExpC4);
  set(Const::kExpC5, numerics::kExpC5);
  set(Const::kExpC6, numerics::kExpC6);
  set(Const::kExpLow, numerics::kExpLow);
  set(Const::kExpHigh, numerics::kExpHigh);
  set(Const::kMinusInfinity, -std::numeric_limits<float>::infinity());
  set_bits(Const::kAbsMask, 0x7FFFFFFF);
  set_bits(Const::kSignMask, 0x80000000);
  set_bits(Const::kScaleMask, numerics::kScaleMask);
  set(Const::kQuantMax, numerics::kQuantMax);
  set(Const::kWeightMax, numerics::kWeightMax);
  set(Const::kInverseWeightMax, numerics::kInverseWeightMax);
  set(Const::kQuantZero, numerics::kQuantZero);
  set(Const::kNegMagic, -kMagic);
  set_bits(Const::kMagicInt, kMagicBits);
  set_bits(Const::kByte128, 0x80808080);
  set_bits(Const::kInt2048, 2048);
  set(Const::kGeluSlope, numerics::kGeluSlope);
  set(Const::kGeluCube, numerics::kGeluCube);
  set(Const::kGateLimit, numerics::kGateLimit);
  set(Const::kNegGateLimit, -numerics::kGateLimit);
  set(Const::kClampedSlope, numerics::kClampedSlope);
  set_bits(Const::kLowBytes, 0x00FF00FF);
  for (uint32_t bit = 0; bit < 4; ++bit) {
    auto& signs = table[static_cast<size_t>(Const::kSigns1) + bit].bits;
    for (uint32_t i = 0; i < 16; ++i)
      signs[i] = std::bit_cast<uint32_t>(i >> bit & 1 ? -1.0f : 1.0f);
  }
  // Where packing leaves the dword (4 bytes) of elements 4i..4i+3 of a block. Two ymm packs: the
  // 128-bit part is the parity of i. One zmm pack: the part is i mod 4, and elements 16.. come
  // second; the upper half is an unused copy.
  for (uint32_t i = 0; i < 8; ++i) {
    table[static_cast<size_t>(Const::kPackOrder256)].bits[i] = i % 2 * 4 + i / 2;
    table[static_cast<size_t>(Const::kPackOrder512)].bits[i] = i % 4 * 4 + i / 4;
  }
  return table;
}();

// 16 ones, then 16 zeros: the mask of the first c lanes starts at &kMaskLanes[16 - c].
constexpr std::array<int32_t, 32> kMaskLanes = [] {
  std::array<int32_t, 32> lanes = {};
  for (size_t i = 0; i < 16; ++i) lanes[i] = -1;
  return lanes;
}();

constexpr int kNearestEven = 8;    // vroundps, vrndscaleps: to nearest even, precision exceptions
                                   // suppressed
constexpr int kGreaterEqual = 13;  // vcmpps: GE_OS, false for NaN

}  // namespace

Vec16Emitter::Vec16Emitter(x86::Compiler& compiler, Isa isa, const asmjit::FuncSignature& signature)
    : cc(compiler),
      avx512_(isa == Isa::kAvx512Vnni),
      vnni_(isa != Isa::kAvx2),
      function_(cc.addFunc(signature)) {
  function_->frame().setAvxEnabled();
  if (avx512_) function_->frame().setAvx512Enabled();
  function_->frame().setAvxCleanup();  // vzeroupper: the callers are SSE code
  constants_ = cc.newUIntPtr();
  cc.mov(constants_, reinterpret_cast<uintptr_t>(kConstants.data()));
}

void Vec16Emitter::End() {
  cc.ret();
  cc.endFunc();
}

x86::Gp Vec16Emitter::PointerArg(int index) {
  x86::Gp r = cc.newUIntPtr();
  function_->setArg(static_cast<size_t>(index), r);
  return r;
}

x86::Xmm Vec16Emitter::FloatArg(int index) {
  x86::Xmm r = cc.newXmmSs();
  function_->setArg(static_cast<size_t>(index), r);
  return r;
}

Vec16 Vec16Emitter::New() {
  if (avx512_) return {{cc.newZmm(), x86::Vec()}};
  return {{cc.newYmm(), cc.newYmm()}};
}

Vec16 Vec16Emitter::Zero() {
  const Vec16 v = New();
  for (int i = 0; i < parts(); ++i) {
    const x86::Xmm x = v.part[i].xmm();  // writing an xmm clears the upper bits
    cc.vxorps(x, x, x);
  }
  return v;
}

void Vec16Emitter::Op(Id id, const Vec16& d, const Vec16& a, const Arg& b) {
  for (int i = 0; i < parts(); ++i) cc.emit(id, d.part[i], a.part[i], b.part(i));
}

void Vec16Emitter::Op(Id id, const Vec16& d, const Arg& a) {
  for (int i = 0; i < parts(); ++i) cc.emit(id, d.part[i], a.part(i));
}

void Vec16Emitter::OpImm(Id id, const Vec16& d, const Arg& a, int immediate) {
  for (int i = 0; i < parts(); ++i) cc.emit(id, d.part[i], a.part(i), asmjit::Imm(immediate));
}

Vec16 Vec16Emitter::Load(const x86::Mem& floats, const Mask16* mask) {
  const Vec16 v = New();
  if (mask == nullptr) {
    Op(I::kIdVmovups, v, floats);
  } else if (avx512_) {
    cc.k(mask->k).z().vmovups(v.part[0], floats);
  } else {
    Op(I::kIdVmaskmovps, v, mask->v, floats);
  }
  return v;
}

void Vec16Emitter::Store(const x86::Mem& floats, const Vec16& v, const Mask16* mask) {
  const Arg to(floats);
  for (int i = 0; i < parts(); ++i) {
    if (mask == nullptr) {
      cc.emit(I::kIdVmovups, to.part(i), v.part[i]);
    } else if (avx512_) {
      cc.k(mask->k).vmovups(floats, v.part[0]);
    } else {
      cc.emit(I::kIdVmaskmovps, to.part(i), mask->v.part[i], v.part[i]);
    }
  }
}

void Vec16Emitter::Select(const Vec16& v, const Mask16& mask, const Arg& otherwise) {
  if (avx512_) {
    const Vec16 selected = New();
    Op(I::kIdVmovups, selected, otherwise);
    cc.k(mask.k).vmovaps(selected.part[0], v.part[0]);
    Op(I::kIdVmovaps, v, selected);
    return;
  }
  for (int i = 0; i < 2; ++i) {
    const x86::Ymm other = cc.newYmm();
    cc.emit(I::kIdVmovups, other, otherwise.part(i));
    cc.emit(I::kIdVblendvps, v.part[i], other, v.part[i], mask.v.part[i]);
  }
}

Vec16 Vec16Emitter::Broadcast(const x86::Xmm& scalar) {
  const Vec16 v = New();
  Op(I::kIdVbroadcastss, v, Arg::Same(scalar));
  return v;
}

Vec16 Vec16Emitter::Broadcast(const x86::Mem& scalar) {
  const Vec16 v = New();
  for (int i = 0; i < parts(); ++i) cc.vbroadcastss(v.part[i], scalar);
  return v;
}

Vec16 Vec16Emitter::BroadcastPair(const x86::Xmm& two_floats) {
  const Vec16 v = New();
  Op(I::kIdVbroadcastsd, v, Arg::Same(two_floats));
  return v;
}

void Vec16Emitter::Exp(std::span<const Vec16> xs) {
  struct Lane {
    Vec16 x, n, p;
    Mask16 normal;
  };
  std::vector<Lane> lanes;
  for (const Vec16& x : xs) {
    Lane& lane = lanes.emplace_back(Lane{x, New(), New(), {}});
    if (avx512_) {
      lane.normal.k = cc.newKw();
      cc.vcmpps(lane.normal.k, x.part[0], XmmConst(Const::kExpLow), kGreaterEqual);
    } else {
      lane.normal.v = New();
      for (int i = 0; i < 2; ++i) {
        cc.emit(I::kIdVcmpps, lane.normal.v.part[i], x.part[i], XmmConst(Const::kExpLow),
                asmjit::Imm(kGreaterEqual));
      }
    }
  }
  const auto each = [&](auto emit) {
    for (const Lane& lane : lanes) emit(lane);
  };
  each([&](const Lane& l) { Op(I::kIdVminps, l.x, l.x, Constant(Const::kExpHigh)); });
  each([&](const Lane& l) { Op(I::kIdVmulps, l.n, l.x, Constant(Const::kLog2E)); });
  each([&](const Lane& l) {
    OpImm(avx512_ ? I::kIdVrndscaleps : I::kIdVroundps, l.n, l.n, kNearestEven);
  });
  each([&](const Lane& l) { Op(I::kIdVfmadd231ps, l.x, l.n, Constant(Const::kNegLn2High)); });
  each([&](const Lane& l) { Op(I::kIdVfmadd231ps, l.x, l.n, Constant(Const::kNegLn2Low)); });
  each([&](const Lane& l) { Op(I::kIdVmovups, l.p, Constant(Const::kExpC6)); });
  for (const Const c :
       {Const::kExpC5, Const::kExpC4, Const::kExpC3, Const::kExpC2, Const::kOne, Const::kOne}) {
    each([&](const Lane& l) { Op(I::kIdVfmadd213ps, l.p, l.x, Constant(c)); });
  }
  each([&](const Lane& l) { Op(I::kIdVcvtps2dq, l.n, l.n); });
  each([&](const Lane& l) { OpImm(I::kIdVpslld, l.n, l.n, 23); });
  each([&](const Lane& l) {
    if (avx512_) {
      cc.k(l.normal.k).z().vpaddd(l.x.part[0], l.p.part[0], l.n.part[0]);
    } else {
      Op(I::kIdVpaddd, l.x, l.p, l.n);
      Op(I::kIdVandps, l.x, l.x, l.normal.v);
    }
  });
}

Arg Vec16Emitter::BroadcastOperand(const x86::Mem& scalar) {
  if (avx512_) return Arg::Same(scalar._1to16());
  const x86::Ymm y = cc.newYmm();
  cc.vbroadcastss(y, scalar);
  return Arg::Same(y);
}

Vec16 Vec16Emitter::HalvesToFloats(const x86::Mem& halves) {
  const Vec16 v = New();
  for (int i = 0; i < parts(); ++i) cc.vcvtph2ps(v.part[i], halves.cloneAdjusted(16 * i));
  return v;
}

void Vec16Emitter::AddDots(const Vec16& sums, const x86::Vec& bytes, const x86::Mem& others) {
  const Arg from(others);
  for (int i = 0; i < parts(); ++i) {
    if (avx512_) {
      cc.emit(I::kIdVpdpbusd, sums.part[i], bytes, from.part(i));
    } else {
      cc.vex().emit(I::kIdVpdpbusd, sums.part[i], bytes, from.part(i));
    }
  }
}

void Vec16Emitter::Butterfly(const Vec16& v, int step) {
  const Vec16 other = New();
  constexpr int kSwapPairs = 0b10110001, kSwapHalves = 0b01001110;  // the swaps within four
  if (step <= 2) {
    OpImm(I::kIdVpermilps, other, v, step == 1 ? kSwapPairs : kSwapHalves);
  } else if (avx512_) {
    const int order = step == 4 ? kSwapPairs : kSwapHalves;
    cc.vshuff32x4(other.part[0].zmm(), v.part[0].zmm(), v.part[0].zmm(), order);
  } else if (step == 4) {
    for (int i = 0; i < 2; ++i)
      cc.vperm2f128(other.part[i].ymm(), v.part[i].ymm(), v.part[i].ymm(), 1);
  } else {
    for (int i = 0; i < 2; ++i) cc.vmovaps(other.part[i].ymm(), v.part[1 - i].ymm());
  }
  // A product with 1 or -1 is exact: this is a sum or a difference.
  const Const signs = step == 1   ? Const::kSigns1
                      : step == 2 ? Const::kSigns2
                      : step == 4 ? Const::kSigns4
                                  : Const::kSigns8;
  Op(I::kIdVfmadd132ps, v, other, Arg(XmmConst(signs)));
}

// The packs work within 128-bit parts; a permutation of dwords puts the bytes in order. (With
// AVX-512, two vpmovsdb and an insertion take five uops of the only shuffle port; this takes
// three.)
x86::Ymm Vec16Emitter::ToBytes(const Vec16& low, const Vec16& high, Bytes bytes) {
  const Id pack = bytes == Bytes::kSigned ? I::kIdVpacksswb : I::kIdVpackuswb;
  const x86::Ymm q = cc.newYmm();
  if (avx512_) {
    const x86::Zmm packed = cc.newZmm(), order = cc.newZmm();
    cc.vpackssdw(packed, low.part[0], high.part[0]);
    cc.emit(pack, packed, packed, packed);
    cc.vmovups(order, XmmConst(Const::kPackOrder512));
    cc.vpermd(packed, order, packed);
    cc.vmovaps(q, packed.ymm());
  } else {
    const x86::Ymm t = cc.newYmm(), order = cc.newYmm();
    cc.vpackssdw(q, low.part[0], low.part[1]);
    cc.vpackssdw(t, high.part[0], high.part[1]);
    cc.emit(pack, q, q, t);
    cc.vmovups(order, XmmConst(Const::kPackOrder256));
    cc.vpermd(q, order, q);
  }
  return q;
}

x86::Xmm Vec16Emitter::Reduce(Id id, const Vec16& v) {
  const x86::Ymm t = cc.newYmm();
  if (avx512_) {
    const x86::Ymm high = cc.newYmm();
    cc.vextractf32x8(high, v.part[0], 1);
    cc.emit(id, t, v.part[0].ymm(), high);
  } else {
    cc.emit(id, t, v.part[0], v.part[1]);
  }
  const x86::Xmm u = cc.newXmm(), w = cc.newXmm();
  if (avx512_) {
    cc.vextractf32x4(w, t, 1);
  } else {
    cc.vextractf128(w, t, 1);
  }
  cc.emit(id, u, t.xmm(), w);
  cc.vpermilps(w, u, 0b1110);  // lanes 2 and 3
  cc.emit(id, u, u, w);
  cc.vpermilps(w, u, 0b0001);  // lane 1
  cc.emit(id, u, u, w);
  return u;
}

Mask16 Vec16Emitter::FirstLanes(const x86::Gp& count) {
  Mask16 mask;
  const x86::Gp from = cc.newUIntPtr();
  cc.mov(from, reinterpret_cast<uintptr_t>(kMaskLanes.data() + 16));
  const x86::Gp bytes = cc.newUIntPtr();
  cc.mov(bytes, count);
  cc.shl(bytes, 2);
  cc.sub(from, bytes);
  if (avx512_) {
    const x86::Zmm lanes = cc.newZmm();
    cc.vmovups(lanes, x86::ptr(from));
    mask.k = cc.newKw();
    cc.vpmovd2m(mask.k, lanes);
  } else {
    mask.v = Load(x86::ptr(from));
  }
  return mask;
}

}  // namespace larder::kernels::jit
