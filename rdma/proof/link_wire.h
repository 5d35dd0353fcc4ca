// The messages of a link between servers after the proof (rdma/proof/link_proof.h), and the checks
// that they pass before use: the hello of a connection, the beats of its control connection, the
// header of each frame. They have fixed sizes and are little-endian (as every machine that Larder
// runs on). No pointer, shape or type is taken from the wire. Pure functions; fuzzed by
// rdma/tcp/link_wire_fuzz.cc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "sync/fault.h"

namespace larder::rdma::inline proof {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

inline constexpr uint64_t kWireMagic = 0x4b4e4c5244524cull;  // "LRDRLNK"
inline constexpr uint32_t kWireVersion = 4;

inline constexpr size_t kMacBytes = 32;  // HMAC-SHA-256

enum class HelloKind : uint32_t {
  kControl = 1,  // connector -> listener: asks for a link with these properties
  kAccepted,     // listener -> connector: agrees; rdma_port is set
  kRefused,      // listener -> connector: text says why; no other field is set
};

// Text fields are zero-terminated; Text() can also read one that is not.
struct WireHello {
  uint64_t magic = kWireMagic;
  uint32_t version = kWireVersion;
  HelloKind kind = HelloKind::kControl;
  uint32_t transport = 0;
  uint32_t rdma_port = 0;  // where the listener's rdma_cm listens
  uint64_t plan_hash = 0;
  uint64_t frame_bytes = 0;
  uint64_t slots = 0;
  uint64_t session = 0;  // LinkIdentity's; an answer repeats the connector's
  // The address of the listener's device, IPv4 mapped. Zeros: the address that was connected to.
  uint8_t rdma_address[16] = {};
  char name[64] = {};
  char cluster[64] = {};
  char text[216] = {};
  uint8_t mac[kMacBytes] = {};  // MAC of all before it by the session's key
                                // (rdma/proof/link_proof.h)
};
static_assert(sizeof(WireHello) == 448 && std::is_trivially_copyable_v<WireHello>);

// The text up to its zero or the field's end, unprintable bytes replaced.
template <size_t kSize>
std::string Text(const char (&field)[kSize]) {
  std::string text;
  for (size_t i = 0; i < kSize && field[i] != 0; ++i) {
    text += field[i] >= 0x20 && field[i] < 0x7f ? field[i] : '?';
  }
  return text;
}
// Copies the text into the field; cuts what does not fit.
template <size_t kSize>
void SetText(char (&field)[kSize], const std::string& text) {
  const size_t length = text.size() < kSize - 1 ? text.size() : kSize - 1;
  for (size_t i = 0; i < kSize; ++i) field[i] = i < length ? text[i] : '\0';
}

// Whether this is a hello, of any version.
bool IsHello(const WireHello& hello);
// Why the two ends cannot be linked, for our log; empty if they can. IsHello(theirs) must hold.
std::string Disagreement(const WireHello& mine, const WireHello& theirs);
// The same for the other end. It says which field differs, but not our value, with which the other
// end could pretend to agree next time.
std::string Refusal(const WireHello& mine, const WireHello& theirs);

enum class BeatKind : uint32_t { kAlive = 1, kFault, kBye };
struct WireBeat {
  uint32_t magic = static_cast<uint32_t>(kWireMagic);
  BeatKind kind = BeatKind::kAlive;
  uint32_t code = 0;  // kFault: sync::FaultCode
  uint32_t detail = 0;
};
static_assert(sizeof(WireBeat) == 16 && std::is_trivially_copyable_v<WireBeat>);
bool IsBeat(const WireBeat& beat);
// The fault of a kFault beat. A code that this build does not know, or kNone, counts as kLinkDown.
sync::Fault FaultOf(const WireBeat& beat);

// In front of each frame of a TCP link, on the wire and in the receiver's ring. (Verbs has no
// header.)
struct FrameHeader {
  uint32_t magic = kMagic;
  uint32_t sequence = 0;
  uint32_t size_bytes = 0;
  uint32_t reserved = 0;
  static constexpr uint32_t kMagic = 0x4d524652u;  // "RFRM"
};
static_assert(sizeof(FrameHeader) == 16 && std::is_trivially_copyable_v<FrameHeader>);

// The fault of a frame that may not be used; none if it may. Inline, because it runs for each
// frame.
inline sync::Fault CheckFrameHeader(const FrameHeader& header, uint32_t expected_sequence,
                                    size_t frame_bytes) {
  if (header.magic != FrameHeader::kMagic || header.reserved != 0) [[unlikely]]
    return {sync::FaultCode::kMalformed, header.magic};
  if (header.sequence != expected_sequence) [[unlikely]]
    return {sync::FaultCode::kSequence, header.sequence};
  if (header.size_bytes > frame_bytes) [[unlikely]]
    return {sync::FaultCode::kMalformed, header.size_bytes};
  return {};
}

}  // namespace larder::rdma::proof
