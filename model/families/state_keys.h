// The keys that families with states in matrices have in common: ssm.*.
#pragma once

#include "model/families/family.h"

namespace larder::model::inline families {

struct StateKeys {
  size_t heads, key_heads, head_size;
  Recurrence recurrence;

  // The layer has such states instead of attention, or beside it.
  void Apply(KeysOfModel::Layer& layer, std::span<const LayerOp> ops) const;
  void ApplyBeside(KeysOfModel::Layer& layer, std::span<const LayerOp> ops) const;
};

// Reads ssm.time_step_rank, group_count, inner_size, state_size and conv_kernel. Heads have a
// multiple of `unit` elements. Throws Error for keys that are missing or make no sense.
StateKeys ReadStateKeys(const FamilyKeys&, StateKind, size_t unit);
// Of Mamba-2; the heads of a group have a multiple of 32 elements.
StateKeys ReadMamba2Keys(const FamilyKeys&);

}  // namespace larder::model::families
