// StepKind: the steps of a layer and of a model's ends, in the order in which a token passes
// through them.
#pragma once

#include <cstdint>

namespace larder::model::inline step {

// The kind of a step, for timelines, traces and the test that counts synchronisation points. Some
// occur only as a part of a step (threadpool/timeline.h): the queries' rotation and quantisation,
// and what follows it in kAttention; the activation, in kGateUp.
enum class StepKind : uint16_t {
  kEmbed,
  kReceive,
  kSend,
  kNorm,
  kQkv,
  kAppend,
  kAttention,
  kQueries,
  kScores,
  kSoftmax,
  kValues,
  kMerge,
  kState,  // of a recurrent layer, in the place of attention
  kQuantize,
  kO,
  kRoute,
  kGateUp,
  kActivation,
  kDown,
  kLayerInput,  // what makes layer inputs, and a layer's products for its own
  kLmHeadNorm,
  kLmHead,
  kResidency  // reading a sample of the weights that follow (pipeline/residency/)
};

}  // namespace larder::model::step
