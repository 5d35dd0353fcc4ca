// Command R (Cohere; transformers' CohereForCausalLM, read 2026-11).
//
// Traps: attention and FFN have one norm, LayerNorm without a bias, and both add to the residual.
// logit_scale multiplies. Command R+ has norms of q and k, too, with weights of their own for each
// head; its other models have none.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr std::string_view kCommandRKeys[] = {"logit_scale"};
constexpr Family::Sample::Value kCommandRSample[] = {{"logit_scale", 0.25f}};

void ReadCommandR(const FamilyKeys& keys, KeysOfModel& model) {
  model.scales.logits = keys.Positive("logit_scale", 1.0);
}
}  // namespace

const Family kCommandR = {.name = "command-r",
                          .number = 14,
                          .pairing = RopePairing::kInterleaved,
                          .qkv_bias = Family::QkvBias::kWhereInFile,
                          .qk_norm = QkNorm::kEachHead,
                          .ops = kParallel,
                          .norm = NormKind::kLayer,
                          .qk_norm_where_in_file = true,
                          .keys = kCommandRKeys,
                          .read = ReadCommandR,
                          .sample = {.values = kCommandRSample}};

}  // namespace larder::model::families
