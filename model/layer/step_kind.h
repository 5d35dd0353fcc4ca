// StepKind: the steps of a layer and of a model's ends, in the order in which a token passes through them.
#pragma once

#include <cstdint>

namespace larder::model::inline layer {

// The kind of a step, for timelines, traces and the test that counts synchronisation points.
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

}  // namespace larder::model::layer
