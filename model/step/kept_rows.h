// KeptRows: the rows of a micro-batch whose logits are wanted, when they go on alone. Sized at
// set-up, then filled for each micro-batch without an allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/step/batch_rows.h"

namespace larder::model::inline step {

class KeptRows {
 public:
  explicit KeptRows(size_t most) : slot_(most), position_(most), row_(most) {}

  void Clear() { count_ = 0; }

  // The logit rows of a part of a micro-batch, which are now rows first_row, first_row + 1, ... of
  // the buffers. Valid until the next Clear.
  BatchRows Take(const BatchRows& part, uint32_t first_row) {
    BatchRows kept = part;
    kept.rows = part.logit_rows;
    kept.first_row = first_row;
    kept.kv_updates = 0;
    kept.slot = slot_.data() + count_;
    kept.position = position_.data() + count_;
    kept.logit_row = row_.data() + count_;
    for (uint32_t m = 0; m < part.logit_rows; ++m, ++count_) {
      const uint32_t from = part.logit_row[m] - part.first_row;
      slot_[count_] = part.slot[from];
      position_[count_] = part.position[from];
      row_[count_] = first_row + m;
    }
    return kept;
  }
  // Where the rows of all parts are now, in the micro-batch's order.
  const uint32_t* rows() const { return row_.data(); }

 private:
  std::vector<SlotId> slot_;
  std::vector<uint32_t> position_, row_;
  size_t count_ = 0;
};

}  // namespace larder::model::step
