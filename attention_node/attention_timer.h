// AttentionTimer: times attention as a thread of a socket runs it, for the search for an
// AttentionTuning. It runs AttentionStep over a KV region of several heads, large enough together
// to be read from the same cache as a thread's share of the KV cache.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "attention_node/attention_steps.h"
#include "attention_node/kv_region.h"
#include "kernels/tune/attention_search.h"
#include "kernels/tune/scheduled_gemms.h"
#include "topology/arena.h"

namespace larder::attention_node {

class AttentionTimer final : public kernels::AttentionRoundTimer {
 public:
  // `heads`: KV heads of the region, with `group` query heads each. `node`: that of the thread that
  // will measure.
  AttentionTimer(kernels::Isa, size_t head_size, size_t group, size_t heads, NumaNodeId node);

  // Decode is one token after kDecodeDepth - 1 others; a round is attention of all heads. A prompt
  // is about kPrefillRows tokens in whole tiles, half of them before position kPrefillDepth; a
  // round is attention of one head, and the next round takes the next head. Generates and checks
  // kernels before their first round.
  static constexpr size_t kDecodeDepth = 2048, kPrefillDepth = 896, kPrefillRows = 64;
  double Round(const kernels::AttentionTuning&, kernels::AttentionWork) override;
  const kernels::HeadSize& size() const { return size_; }

 private:
  void FillKv();
  void Use(const kernels::AttentionTuning&, kernels::AttentionWork);

  const kernels::Isa isa_;
  const kernels::HeadSize size_;
  KvRegion kv_;
  kernels::ScheduledGemms scores_;
  std::map<size_t, std::vector<kernels::ValuesFn>> values_;  // by number of sums in registers
  topology::Arena arena_;
  AttentionShape shape_;  // the shape of the current round
  std::vector<AttentionOperand> heads_;
  std::vector<SlotId> slots_;  // slots of a round's rows
  std::vector<uint32_t> positions_;
  size_t next_head_ = 0;
};

}  // namespace larder::attention_node
