// BatchRows: the variable input of every step: which rows (tokens) a micro-batch has and where each
// belongs. Owned and filled by the pipeline before Pool::Execute, which publishes it; constant
// while the micro-batch runs.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "model/step/kv_update.h"

namespace larder::model::inline step {

struct BatchRows {
  uint32_t rows = 0;               // tokens in this micro-batch
  uint32_t first_row = 0;          // row m is row first_row + m of every activation buffer
  const int32_t* token = nullptr;  // [rows]
  const SlotId* slot = nullptr;    // [rows]; rows of one slot are adjacent, in ascending position
  const uint32_t* position = nullptr;  // [rows]
  uint32_t logit_rows = 0;             // rows whose next-token logits, or hidden states, are wanted
  const uint32_t* logit_row = nullptr;  // [logit_rows]: which rows of the buffers, ascending
  bool lm_head = true;      // false: only the hidden states of the logit rows are wanted
  uint32_t kv_updates = 0;  // changes to the KV table that come before the rows
  const KvUpdate* kv_update = nullptr;  // [kv_updates]
  const float* received = nullptr;  // stages after the first: [rows][dim], the residual that was
                                    // received
  float* sending = nullptr;         // stages before the last: [rows][dim], the residual to send
};

}  // namespace larder::model::step
