// FaultFlag: how the data path, which cannot throw, reports that something went wrong. The first
// fault wins and stays. The thread that drives the steps reads the flag at the end of a step or
// frame and stops.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/memory.h"

namespace larder::sync {

enum class FaultCode : uint32_t {  // the numbers travel between servers
  kNone = 0,
  kSequence = 1,   // a frame's sequence number was not the next one
  kLinkDown = 2,   // the other end of a link is gone
  kTimeout = 4,    // a frame took longer than its limit
  kInternal = 6,   // a check of the data path failed
  kMalformed = 7,  // what came over a link cannot be a frame
  kRankLost = 8,   // a socket of the chain other than this link's two ends was lost: detail is its
                   // rank
  kRankStopped = 9,  // as kRankLost, but somebody stopped it
};
constexpr const char* FaultName(FaultCode code) {
  switch (code) {
    case FaultCode::kNone:
      return "none";
    case FaultCode::kSequence:
      return "sequence number out of order";
    case FaultCode::kLinkDown:
      return "link down";
    case FaultCode::kTimeout:
      return "timeout";
    case FaultCode::kInternal:
      return "internal check";
    case FaultCode::kMalformed:
      return "malformed frame";
    case FaultCode::kRankLost:
      return "another socket of the chain is lost, rank";
    case FaultCode::kRankStopped:
      return "another socket of the chain was stopped, rank";
  }
  return "unknown";
}

struct Fault {
  FaultCode code = FaultCode::kNone;
  uint32_t detail = 0;  // chosen by the raiser: a layer, a slot, a sequence number
  explicit operator bool() const { return code != FaultCode::kNone; }
  // Whether it was passed on along a chain: detail is the lost socket's rank.
  bool names_rank() const {
    return code == FaultCode::kRankLost || code == FaultCode::kRankStopped;
  }
};

class alignas(kFalseSharingBytes) FaultFlag {
 public:
  // Any thread may call it. Returns true if this was the first fault. Success is a release: what
  // the raiser wrote before (a dump of its state) is visible to a reader that sees the fault.
  bool Raise(FaultCode code, uint32_t detail = 0) {
    uint64_t none = 0;
    return packed_.compare_exchange_strong(none,
                                           uint64_t{static_cast<uint32_t>(code)} << 32 | detail,
                                           std::memory_order_release, std::memory_order_relaxed);
  }
  // acquire: pairs with the exchange in Raise
  Fault Read() const {
    const uint64_t packed = packed_.load(std::memory_order_acquire);
    return {static_cast<FaultCode>(packed >> 32), static_cast<uint32_t>(packed)};
  }
  bool raised() const { return packed_.load(std::memory_order_relaxed) != 0; }

 private:
  std::atomic<uint64_t> packed_{0};
};
static_assert(sizeof(FaultFlag) == kFalseSharingBytes);

}  // namespace larder::sync
