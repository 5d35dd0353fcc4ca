// 16 float lanes as one type, so that each elementwise kernel is written once: one zmm register
// with AVX-512, two ymm with AVX2. A wrapper of asmjit's Compiler (virtual registers). Internal to
// kernels/; set-up only. A Vec16Emitter lives while one function is generated.
#pragma once

#include <asmjit/x86.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/formats/isa.h"
#include "kernels/jit/jit.h"

namespace larder::kernels::inline jit {

namespace x86 = asmjit::x86;

// 16 lanes; part 1 is unused with AVX-512.
struct Vec16 {
  x86::Vec part[2];
};

// A mask of the first `count` lanes: a k register, or two ymm whose selected lanes are all ones.
struct Mask16 {
  x86::KReg k;
  Vec16 v;
};

// Constants in memory, each repeated 16 times (except kPackOrder..., which are dword indices for
// vpermd). kNeg... have the sign that an fma needs.
enum class Const {
  kOne,
  kLog2E,
  kNegLn2High,
  kNegLn2Low,
  kExpC2,
  kExpC3,
  kExpC4,
  kExpC5,
  kExpC6,
  kExpLow,
  kExpHigh,
  kMinusInfinity,
  kAbsMask,
  kSignMask,
  kScaleMask,
  kQuantMax,
  kWeightMax,
  kInverseWeightMax,
  kQuantZero,
  kNegMagic,
  kMagicInt,
  kByte128,
  kInt2048,
  kGeluSlope,
  kGeluCube,
  kGateLimit,
  kNegGateLimit,
  kClampedSlope,
  kLowBytes,  // the low byte of each 16 bits
  kSigns1,    // 1 and -1: -1 in the lanes whose number has that bit
  kSigns2,
  kSigns4,
  kSigns8,
  kPackOrder256,
  kPackOrder512,
  kCount
};

// The last operand of an instruction: a Vec16, 16 consecutive floats, or one operand used for all
// parts (a constant, a broadcast).
class Arg {
 public:
  Arg(const Vec16& v) : parts_{v.part[0], v.part[1]} {}  // NOLINT: implicit on purpose
  Arg(const x86::Mem& floats) : parts_{floats, floats.cloneAdjusted(32)} {}  // NOLINT
  static Arg Same(const asmjit::Operand_& o) { return Arg(o, o); }
  const asmjit::Operand_& part(int i) const { return parts_[i]; }

 private:
  Arg(const asmjit::Operand_& a, const asmjit::Operand_& b) {
    parts_[0].copyFrom(a);
    parts_[1].copyFrom(b);
  }
  asmjit::Operand parts_[2];
};

class Vec16Emitter {
 public:
  using Id = x86::Inst::Id;

  Vec16Emitter(x86::Compiler& compiler, Isa isa, const asmjit::FuncSignature& signature);
  void End();  // emits the return and ends the function

  bool avx512() const { return avx512_; }
  bool vnni() const { return vnni_; }
  int parts() const { return avx512_ ? 1 : 2; }

  x86::Gp PointerArg(int index);  // pointer or size_t argument
  x86::Xmm FloatArg(int index);

  // Constants. XmmConst is for scalar and xmm instructions.
  x86::Mem XmmConst(Const c) { return x86::ptr(constants_, static_cast<int>(c) * 64); }
  Arg Constant(Const c) { return Arg::Same(XmmConst(c)); }

  // Lane-wise operations: the instruction (d, a, b) on each part.
  Vec16 New();
  Vec16 Zero();
  void Op(Id id, const Vec16& d, const Vec16& a, const Arg& b);
  void Op(Id id, const Vec16& d, const Arg& a);
  void OpImm(Id id, const Vec16& d, const Arg& a, int immediate);
  // lanes outside the mask are +0
  Vec16 Load(const x86::Mem& floats, const Mask16* mask = nullptr);
  void Store(const x86::Mem& floats, const Vec16& v, const Mask16* mask = nullptr);
  void Select(const Vec16& v, const Mask16& mask,
              const Arg& otherwise);  // lanes outside the mask are taken from `otherwise`
  Vec16 Broadcast(const x86::Xmm& scalar);
  Vec16 Broadcast(const x86::Mem& scalar);
  Vec16 BroadcastPair(const x86::Xmm& two_floats);
  // Exp of kernels/formats/numerics.h, in place. Each instruction is emitted for all vectors before
  // the next one.
  void Exp(std::span<const Vec16> xs);
  // An operand for fma with the float at `scalar` in every lane: a broadcast within the
  // instruction, or a ymm that is loaded here.
  Arg BroadcastOperand(const x86::Mem& scalar);
  Vec16 HalvesToFloats(const x86::Mem& halves);  // 16 f16

  // sums[i] += the 4 products of dword i: unsigned bytes of `bytes`, the same register for all
  // parts, and signed ones of `others`. Requires vnni().
  void AddDots(const Vec16& sums, const x86::Vec& bytes, const x86::Mem& others);
  // Packs 32 integers, the first 16 of them in `low`, into bytes. They must fit signed or unsigned
  // bytes.
  enum class Bytes { kSigned, kUnsigned };
  x86::Ymm ToBytes(const Vec16& low, const Vec16& high, Bytes = Bytes::kSigned);

  // v[i] = v[i] + v[i + step], v[i + step] = v[i] - v[i + step], for the lanes i without the bit of
  // `step`: 1, 2, 4 or 8.
  void Butterfly(const Vec16& v, int step);

  // Reduces all lanes into lane 0. Id is an addition (in Sum16's order) or a maximum.
  x86::Xmm Reduce(Id id, const Vec16& v);

  Mask16 FirstLanes(const x86::Gp& count);  // count in [0, 16]

  // Calls body(offset, mask) for each 16 floats of `n`; offset is a register, in bytes. If n is not
  // a multiple of 16, the last call has a mask.
  template <typename Body>
  void Sweep(const x86::Gp& n, Body body) {
    x86::Gp offset = cc.newUIntPtr(), end = cc.newUIntPtr(), rest = cc.newUIntPtr();
    asmjit::Label loop = cc.newLabel(), tail = cc.newLabel(), done = cc.newLabel();
    cc.xor_(offset.r32(), offset.r32());
    cc.mov(end, n);
    cc.and_(end, -16);
    cc.shl(end, 2);
    cc.jz(tail);
    cc.bind(loop);
    body(offset, nullptr);
    cc.add(offset, 64);
    cc.cmp(offset, end);
    cc.jb(loop);
    cc.bind(tail);
    cc.mov(rest, n);
    cc.and_(rest, 15);
    cc.jz(done);
    const Mask16 mask = FirstLanes(rest);
    body(offset, &mask);
    cc.bind(done);
  }

  x86::Compiler& cc;

 private:
  bool avx512_, vnni_;
  asmjit::FuncNode* function_;
  x86::Gp constants_;
};

// Generates one function through emit(Vec16Emitter&) into *function. perf shows it as
// larder::name.isa.
template <typename... Args, typename Emit>
void GenerateVec16(std::string_view name, Isa isa, void (**function)(Args...), Emit emit) {
  const std::string full_name = fmt::format("larder::{}.{}", name, IsaName(isa));
  *function = Jit::Compile<void (*)(Args...)>(full_name, [&](x86::Compiler& cc) {
    Vec16Emitter e(cc, isa, asmjit::FuncSignatureT<void, Args...>(asmjit::CallConvId::kCDecl));
    emit(e);
    e.End();
  });
}

}  // namespace larder::kernels::jit
