// FrameRows: what changes from frame to frame, read by every step: which rows (tokens) a micro-batch has and
// where each belongs. Owned and filled by the pipeline before Pool::Execute, which publishes it; constant
// while the frame runs.
#pragma once

#include <cstdint>

namespace larder::threadpool {

struct FrameRows {
  uint32_t rows = 0;                    // tokens in this micro-batch
  uint32_t first_row = 0;               // row m is row first_row + m of every activation buffer
  const int32_t* token = nullptr;       // [rows]
  const int32_t* slot = nullptr;        // [rows]; rows of one slot are adjacent, in ascending position
  const uint32_t* position = nullptr;   // [rows]
  uint32_t logit_rows = 0;              // rows whose next-token logits are wanted
  const uint32_t* logit_row = nullptr;  // [logit_rows], ascending indices into rows
  const float* received = nullptr;      // stages after the first: [rows][dim], the residual as it came
  float* sending = nullptr;             // stages before the last: [rows][dim], where it leaves
};

// What a step is, for timelines, traces and the test that counts synchronisation points.
enum class StepKind : uint16_t {
  kEmbed,
  kReceive,
  kSend,
  kNorm,
  kQkv,
  kAppend,
  kAttention,
  kQuantize,
  kO,
  kGateUp,
  kDown,
  kHeadNorm,
  kHead
};

// Thread t of n takes [begin, end) of `count` things: contiguous, sizes differing by at most one.
struct Share {
  uint32_t begin, end;
};
constexpr Share ShareOf(uint32_t count, uint32_t t, uint32_t n) {
  return {static_cast<uint32_t>(static_cast<uint64_t>(count) * t / n),
          static_cast<uint32_t>(static_cast<uint64_t>(count) * (t + 1) / n)};
}

}  // namespace larder::threadpool
