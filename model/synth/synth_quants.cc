#include "model/synth/synth_quants.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "model/gguf/quants.h"
#include "model/synth/synth_random.h"

namespace larder::model::inline synth {
namespace {

constexpr size_t kMaxElements = 256;
constexpr size_t kMaxSubBlocks = 16;

// Eight weights' codes from a hash, one hash for the block's scales, and four sub-blocks' integers
// from a hash.
constexpr size_t kCodesPerHash = 8;
constexpr size_t kIntegersPerHash = 4;
// The most that a type needs.
constexpr size_t kHashesPerBlock =
    kMaxElements / kCodesPerHash + 1 + 2 * kMaxSubBlocks / kIntegersPerHash;

// The outermost codes stand for +-this many standard deviations and more. Quantisers map a group's
// largest weight there, that is one of 16 or 32; beyond 1.8 deviations there is one of 14. With
// more, some of Q6_K's 64 codes would get none of the table's 256 slots.
constexpr double kOutermost = 1.8;

}  // namespace

// A block as numbers, before it is packed.
struct Numbers {
  std::array<uint8_t, kMaxElements> codes{};
  std::array<uint8_t, kMaxSubBlocks> scales{}, minima{};  // sub-blocks' integers as stored
  uint16_t d = 0, dmin = 0;                               // f16; the minimum is subtracted
  uint8_t exponent = 0;                                   // E8M0
};

namespace {

void Store(uint16_t value, uint8_t* at) { std::memcpy(at, &value, sizeof value); }

// out[i] gets kWidth bits, from bit kFrom on, of the codes i, i + kStride, i + 2 * kStride...: of
// as many as fill a byte, the first one lowest. All layouts consist of such planes.
template <size_t kFrom, size_t kWidth, size_t kStride>
void PackPlane(const uint8_t* codes, uint8_t* out) {
  constexpr unsigned kMask = (1u << kWidth) - 1;
  for (size_t i = 0; i < kStride; ++i) {
    unsigned byte = 0;
    for (size_t k = 0; k < 8 / kWidth; ++k)
      byte |= (codes[k * kStride + i] >> kFrom & kMask) << (k * kWidth);
    out[i] = static_cast<uint8_t>(byte);
  }
}

// The bytes of each function's block are described where model/gguf/quants.cc reads them.

void PackQ4_0(const Numbers& n, uint8_t* block) {  // also IQ4_NL
  Store(n.d, block);
  PackPlane<0, 4, 16>(n.codes.data(), block + 2);
}

constexpr uint16_t kSignF16 = 0x8000;  // Q4_1 and Q5_1 add their minimum

void PackQ4_1(const Numbers& n, uint8_t* block) {
  Store(n.d, block);
  Store(n.dmin ^ kSignF16, block + 2);
  PackPlane<0, 4, 16>(n.codes.data(), block + 4);
}

// Fifth bits of 32 codes in order, then the nibbles.
void PackFifthAndNibbles(const uint8_t* codes, uint8_t* out) {
  for (size_t b = 0; b < 4; ++b) PackPlane<4, 1, 1>(codes + 8 * b, out + b);
  PackPlane<0, 4, 16>(codes, out + 4);
}

void PackQ5_0(const Numbers& n, uint8_t* block) {
  Store(n.d, block);
  PackFifthAndNibbles(n.codes.data(), block + 2);
}

void PackQ5_1(const Numbers& n, uint8_t* block) {
  Store(n.d, block);
  Store(n.dmin ^ kSignF16, block + 2);
  PackFifthAndNibbles(n.codes.data(), block + 4);
}

void PackMxfp4(const Numbers& n, uint8_t* block) {
  block[0] = n.exponent;
  PackPlane<0, 4, 16>(n.codes.data(), block + 1);
}

void PackQ2K(const Numbers& n, uint8_t* block) {
  for (size_t sub = 0; sub < 16; ++sub)
    block[sub] = static_cast<uint8_t>(n.scales[sub] | n.minima[sub] << 4);
  for (size_t half = 0; half < 2; ++half)
    PackPlane<0, 2, 32>(n.codes.data() + half * 128, block + 16 + half * 32);
  Store(n.d, block + 80);
  Store(n.dmin, block + 82);
}

void PackQ3K(const Numbers& n, uint8_t* block) {
  PackPlane<2, 1, 32>(n.codes.data(), block);
  for (size_t half = 0; half < 2; ++half)
    PackPlane<0, 2, 32>(n.codes.data() + half * 128, block + 32 + half * 32);
  PackPlane<0, 4, 8>(n.scales.data(), block + 96);
  PackPlane<4, 2, 4>(n.scales.data(), block + 104);
  Store(n.d, block + 108);
}

void PackQ4KOrQ5K(const Numbers& n, uint8_t* block, uint8_t* nibbles) {
  Store(n.d, block);
  Store(n.dmin, block + 2);
  uint8_t* packed = block + 4;
  for (size_t sub = 0; sub < 4; ++sub) {
    const int scale = n.scales[sub + 4], minimum = n.minima[sub + 4];
    packed[sub] = static_cast<uint8_t>(n.scales[sub] | scale >> 4 << 6);
    packed[sub + 4] = static_cast<uint8_t>(n.minima[sub] | minimum >> 4 << 6);
    packed[sub + 8] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
  }
  for (size_t pair = 0; pair < 4; ++pair)
    PackPlane<0, 4, 32>(n.codes.data() + pair * 64, nibbles + pair * 32);
}

void PackQ4K(const Numbers& n, uint8_t* block) { PackQ4KOrQ5K(n, block, block + 16); }

void PackQ5K(const Numbers& n, uint8_t* block) {
  PackPlane<4, 1, 32>(n.codes.data(), block + 16);
  PackQ4KOrQ5K(n, block, block + 48);
}

void PackQ6K(const Numbers& n, uint8_t* block) {
  for (size_t half = 0; half < 2; ++half) {
    PackPlane<0, 4, 64>(n.codes.data() + half * 128, block + half * 64);
    PackPlane<4, 2, 32>(n.codes.data() + half * 128, block + 128 + half * 32);
  }
  std::memcpy(block + 192, n.scales.data(), 16);
  Store(n.d, block + 208);
}

void PackIq4Xs(const Numbers& n, uint8_t* block) {
  Store(n.d, block);
  PackPlane<4, 2, 1>(n.scales.data(), block + 2);
  PackPlane<4, 2, 1>(n.scales.data() + 4, block + 3);
  for (size_t pair = 0; pair < 4; ++pair)
    PackPlane<0, 4, 1>(n.scales.data() + 2 * pair, block + 4 + pair);
  for (size_t sub = 0; sub < 8; ++sub)
    PackPlane<0, 4, 16>(n.codes.data() + sub * 32, block + 8 + sub * 16);
}

}  // namespace

struct QuantForm {
  TensorType type;
  size_t codes;  // different ones
  bool minimum;  // codes are from 0 on and a minimum is subtracted; otherwise scales have a random
                 // sign
  size_t sub_blocks;  // with integer scales (and minima); 0: the block's f16 is all
  int middle;         // middle of the sub-blocks' integers: all their bits change in middle +-
                      // middle / 4
  int zero;           // the stored scale that means 0
  void (*pack)(const Numbers&, uint8_t* block);
};

namespace {

constexpr QuantForm kForms[] = {
    {TensorType::kQ4_0, 16, false, 0, 1, 0, PackQ4_0},
    {TensorType::kQ4_1, 16, true, 0, 1, 0, PackQ4_1},
    {TensorType::kQ5_0, 32, false, 0, 1, 0, PackQ5_0},
    {TensorType::kQ5_1, 32, true, 0, 1, 0, PackQ5_1},
    {TensorType::kQ2_K, 4, true, 16, 8, 0, PackQ2K},
    {TensorType::kQ3_K, 8, false, 16, 16, 32, PackQ3K},
    {TensorType::kQ4_K, 16, true, 8, 32, 0, PackQ4K},
    {TensorType::kQ5_K, 32, true, 8, 32, 0, PackQ5K},
    {TensorType::kQ6_K, 64, false, 16, 64, 0, PackQ6K},
    {TensorType::kIQ4_NL, 16, false, 0, 1, 0, PackQ4_0},
    {TensorType::kIQ4_XS, 16, false, 8, 16, 32, PackIq4Xs},
    {TensorType::kMXFP4, 16, false, 0, 1, 0, PackMxfp4},
};

const QuantForm& FormOf(TensorType type) {
  const auto* form = std::ranges::find(kForms, type, &QuantForm::type);
  LARDER_CHECK(form != std::end(kForms), "type {}", static_cast<uint32_t>(type));
  return *form;
}

constexpr uint8_t kExponentOfOne = 127;

// What a code stands for if all scales are 1, as the reader of files says.
double ValueOf(const QuantForm& form, size_t code, size_t elements) {
  Numbers numbers;
  numbers.codes.fill(static_cast<uint8_t>(code));
  numbers.scales.fill(static_cast<uint8_t>(form.zero + 1));
  numbers.d = F32ToF16(1.0f);
  numbers.exponent = kExponentOfOne;
  std::array<uint8_t, kMaxElements> block{};  // no type needs more than a byte per weight
  form.pack(numbers, block.data());
  std::array<float, kMaxElements> x;
  DequantizeQuants(form.type, reinterpret_cast<const char*>(block.data()),
                   std::span(x).first(elements));
  return x[0];
}

// A sub-block's integer: uniform in middle +- middle / 4, from 15 random bits, and a sign from one
// more.
int SubBlockInteger(uint64_t bits, int middle, bool is_signed) {
  const int spread = middle / 4;
  const int magnitude =
      middle - spread + (static_cast<int>(bits >> 1 & 0x7fff) * (2 * spread + 1) >> 15);
  return is_signed && (bits & 1) != 0 ? -magnitude : magnitude;
}

// E8M0 exponents whose scales' mean square is `scale`^2: 2^e is taken with 1 - p and 2^(e + 1) with
// p, so 4^e * (1 + 3 p) = scale^2.
class Exponents {
 public:
  explicit Exponents(double scale) {
    const double e = std::floor(std::log2(scale));
    share_ = (std::pow(scale / std::exp2(e), 2) - 1.0) / 3.0;
    lower_ = static_cast<int>(std::clamp(e + kExponentOfOne, 0.0, 253.0));
  }
  uint8_t Pick(float uniform) const {
    return static_cast<uint8_t>(lower_ +
                                (0.5 * (1.0 + static_cast<double>(uniform)) < share_ ? 1 : 0));
  }

 private:
  double share_;  // p
  int lower_;
};

}  // namespace

QuantBlocks::QuantBlocks(TensorType type) : form_(FormOf(type)) {
  const GgufTypeLayout layout = LayoutOfGgufType(static_cast<uint32_t>(type));
  elements_ = layout.elements;
  bytes_ = layout.bytes;
  FillTable();

  // A weight is a * (s * q - mean * m), or a * s * q without a minimum, where q is a code's value,
  // and a (of the block), s and m (of the sub-block, in units of their middles) are independent
  // with mean 1. So the mean is 0, in types without a minimum by the signs; and the variance
  //   E[a^2] * (E[s^2] * E[q^2] - 2 * mean^2 + E[m^2] * mean^2), or E[a^2] * E[s^2] * E[q^2].
  if (type == TensorType::kMXFP4) {
    deviation_ = std::sqrt(square_);
    return;
  }
  // mean squares of the random factors
  const double uniform = 1.0 + kScaleSpread * kScaleSpread / 3.0;
  const int spread = form_.middle / 4;
  const double integer = 1.0 + spread * (spread + 1.0) / 3.0 / (form_.middle * form_.middle);
  const bool has_integers = form_.sub_blocks != 0;
  double variance = (has_integers ? integer : 1.0) * square_;
  if (form_.minimum) variance += ((has_integers ? integer : uniform) - 2.0) * mean_ * mean_;
  deviation_ = std::sqrt(uniform * variance);
}

// Gives each code its share of a normal distribution in the middle of the codes' values (around 0
// if there is no minimum to subtract), cut halfway between neighbours.
void QuantBlocks::FillTable() {
  std::vector<double> values(form_.codes);
  for (size_t code = 0; code < form_.codes; ++code) values[code] = ValueOf(form_, code, elements_);
  std::vector<size_t> order(form_.codes);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t code) { return values[code]; });
  const double least = values[order.front()], most = values[order.back()];
  const double centre = form_.minimum ? 0.5 * (least + most) : 0.0;
  const double sigma = 0.5 * (most - least) / kOutermost;
  size_t filled = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    size_t end = kSlots;
    if (i + 1 < order.size()) {
      const double cut = 0.5 * (values[order[i]] + values[order[i + 1]]);
      end = static_cast<size_t>(std::lround(NormalCdf((cut - centre) / sigma) * kSlots));
    }
    for (; filled < end; ++filled) {
      codes_[filled] = static_cast<uint8_t>(order[i]);
      mean_ += values[order[i]] / kSlots;
      square_ += values[order[i]] * values[order[i]] / kSlots;
    }
  }
}

void QuantBlocks::Fill(uint64_t key, uint64_t first_block, size_t blocks, float deviation,
                       char* out) const {
  const double scale = deviation / deviation_;
  const Exponents exponents(scale);
  const bool is_signed = !form_.minimum;
  const auto unit = static_cast<float>(scale / form_.middle);
  const auto unit_of_minimum = static_cast<float>(scale * mean_ / form_.middle);
  auto* block = reinterpret_cast<uint8_t*>(out);
  Numbers n;
  for (size_t b = 0; b < blocks; ++b, block += bytes_) {
    uint64_t counter = (first_block + b) * kHashesPerBlock;
    for (size_t at = 0; at < elements_; at += kCodesPerHash) {
      const uint64_t bits = HashBits(key, counter++);
      for (size_t k = 0; k < kCodesPerHash; ++k)
        n.codes[at + k] = codes_[bits >> (8 * k) & (kSlots - 1)];
    }
    const uint64_t bits = HashBits(key, counter++);  // 24 bits, 24 bits and a sign
    const float factor = 1.0f + kScaleSpread * UniformOf(bits);
    const float sign = is_signed && (bits & 1) != 0 ? -1.0f : 1.0f;
    n.d = F32ToF16(unit * factor * sign);
    if (form_.minimum) {
      const float of_minimum =
          form_.sub_blocks == 0 ? 1.0f + kScaleSpread * UniformOf(bits << 24) : 1.0f;
      n.dmin = F32ToF16(unit_of_minimum * factor * of_minimum);
    }
    n.exponent = exponents.Pick(UniformOf(bits));
    for (size_t sub = 0; sub < form_.sub_blocks; sub += kIntegersPerHash) {
      const uint64_t of_scales = HashBits(key, counter++);
      const uint64_t of_minima = form_.minimum ? HashBits(key, counter++) : 0;
      for (size_t k = 0; k < kIntegersPerHash; ++k) {
        const int integer = SubBlockInteger(of_scales >> (16 * k), form_.middle, is_signed);
        n.scales[sub + k] = static_cast<uint8_t>(form_.zero + integer);
        n.minima[sub + k] =
            static_cast<uint8_t>(SubBlockInteger(of_minima >> (16 * k), form_.middle, false));
      }
    }
    form_.pack(n, block);
  }
}

}  // namespace larder::model::synth
