// StepKind: the steps of a layer and of a model's ends, in the order of a token's way.
#pragma once

#include <cstdint>

namespace larder::model {

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

}  // namespace larder::model
