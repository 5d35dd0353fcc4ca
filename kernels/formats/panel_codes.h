// Internal to kernels/formats/: reads and writes one row's codes in a block of a panel
// (PanelCodes). `codes` points at that row in the block's first vector. A word holds four codes, a
// byte each: those of inputs 4j..4j+3.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats {

inline constexpr uint32_t kLow4 = 0x0F0F0F0Fu, kLow3 = 0x07070707u, kLow2 = 0x03030303u,
                          kLow1 = 0x01010101u;

inline uint32_t LoadWord(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}
inline void StoreWord(uint32_t word, uint8_t* at) { std::memcpy(at, &word, sizeof(word)); }

inline unsigned NibbleAt(const uint8_t* codes, size_t input) {
  const size_t vector = input / kVectorInputs;
  return codes[vector % kNibbleVectors * kVectorBytes + input % kVectorInputs] >>
             vector / kNibbleVectors * 4 &
         15;
}

inline void PackFiveBits(const std::array<uint32_t, kBlockVectors>& words, uint8_t* codes) {
  const uint32_t f = words[5], g = words[6], h = words[7];
  const uint32_t rest[kFiveVectors] = {f >> 2 & kLow3, (f & kLow2) << 1 | (h >> 1 & kLow1),
                                       g >> 2 & kLow3, (g & kLow2) << 1 | (h & kLow1),
                                       h >> 2 & kLow3};
  for (size_t k = 0; k < kFiveVectors; ++k)
    StoreWord(words[k] << 3 | rest[k], codes + k * kVectorBytes);
}
inline unsigned FiveBitsAt(const uint8_t* codes, size_t input) {
  const size_t vector = input / kVectorInputs;
  const auto byte = [&](size_t k) {
    return unsigned{codes[k * kVectorBytes + input % kVectorInputs]};
  };
  if (vector < kFiveVectors) return byte(vector) >> 3;
  if (vector == 7) return (byte(4) & 7) << 2 | (byte(1) & 1) << 1 | (byte(3) & 1);
  const size_t first = (vector - kFiveVectors) * 2;
  return (byte(first) & 7) << 2 | (byte(first + 1) >> 1 & 3);
}

// Packs the words of half a block.
inline void PackSixBits(const std::array<uint32_t, kBlockVectors / 2>& words, uint8_t* codes) {
  for (size_t k = 0; k < kTripleVectors; ++k)
    StoreWord(words[k] << 2 | (words[kTripleVectors] >> 2 * (kTripleVectors - 1 - k) & kLow2),
              codes + k * kVectorBytes);
}
inline unsigned SixBitsAt(const uint8_t* codes, size_t input) {
  const size_t vector = input / kVectorInputs;
  const auto byte = [&](size_t k) {
    return unsigned{codes[k * kVectorBytes + input % kVectorInputs]};
  };
  if (vector < kTripleVectors) return byte(vector) >> 2;
  return (byte(0) & 3) << 4 | (byte(1) & 3) << 2 | (byte(2) & 3);
}

}  // namespace larder::kernels::formats
