// StateRegion: the states of the recurrent layers of one attention socket (model::Recurrence). They
// are a class of the KV region's memory, one of whose chunks has the states of all such layers of a
// sequence at one position. The thread that updates a head's state touches its memory first.
#pragma once

#include <cstddef>

#include "attention_node/kv_region.h"
#include "attention_node/state_shape.h"
#include "base/ids.h"
#include "model/config/config.h"

namespace larder::attention_node {

struct HeadState {
  float* matrix;
  float* scale;
  float* tail;
};

class StateRegion {
 public:
  // The region must outlive it.
  StateRegion(const model::ModelConfig& config, const KvRegion& region)
      : shape_(config), region_(region) {}
  const StateShape& shape() const { return shape_; }
  HeadState head(SlotId slot, size_t layer, size_t value_head) const;
  // Copies what the update says, if it is of states, for one layer and head.
  void Copy(const model::KvUpdate&, size_t layer, size_t value_head) const;

 private:
  StateShape shape_;
  const KvRegion& region_;
};

}  // namespace larder::attention_node
