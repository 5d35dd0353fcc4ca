#include "model/families/state_keys.h"

#include "base/error.h"

namespace larder::model::inline families {
namespace {
constexpr size_t kMostHeads = 1024, kMostHeadSize = 1024;
}  // namespace

void StateKeys::Apply(KeysOfModel::Layer& layer, std::span<const LayerOp> ops) const {
  layer.sizes.heads = heads;
  layer.sizes.kv_heads = key_heads;
  layer.sizes.head_size = head_size;
  layer.rotary = RotarySpec();
  layer.ops = ops;
  layer.recurrence = recurrence;
}

void StateKeys::ApplyBeside(KeysOfModel::Layer& layer, std::span<const LayerOp> ops) const {
  layer.ops = ops;
  layer.recurrence = recurrence;
  layer.recurrence.heads = heads;
  layer.recurrence.key_heads = key_heads;
  layer.recurrence.head_size = head_size;
}

StateKeys ReadStateKeys(const FamilyKeys& keys, StateKind kind, size_t unit) {
  const size_t heads = keys.Count("ssm.time_step_rank", 0, kMostHeads);
  const size_t key_heads = keys.Count("ssm.group_count", 0, kMostHeads);
  const size_t inner = keys.Count("ssm.inner_size", 0, kMostHeads * kMostHeadSize, heads);
  const Recurrence recurrence{.kind = kind,
                              .key_size = keys.Count("ssm.state_size", 0, kMostHeadSize, 16),
                              .taps = keys.Count("ssm.conv_kernel", 0, 8)};
  if (heads % key_heads != 0) {
    throw Error("{} is {}, expected a divisor of ssm.time_step_rank, which is {}",
                keys.Name("ssm.group_count"), key_heads, heads);
  }
  if (inner / heads % unit != 0 || inner / heads > kMostHeadSize) {
    throw Error("{} is {}, expected for each of {} heads a multiple of {}, up to {}",
                keys.Name("ssm.inner_size"), inner, heads, unit, kMostHeadSize);
  }
  return {heads, key_heads, inner / heads, recurrence};
}

StateKeys ReadMamba2Keys(const FamilyKeys& keys) {
  const StateKeys states = ReadStateKeys(keys, StateKind::kMamba2, 16);
  const size_t of_group = states.heads / states.key_heads * states.head_size;
  if (of_group % 32 != 0) {
    throw Error("{} is {}, expected for each of {} groups a multiple of 32",
                keys.Name("ssm.inner_size"), states.heads * states.head_size, states.key_heads);
  }
  return states;
}

}  // namespace larder::model::families
