// Gemma 1 (Google; arXiv 2403.08295; transformers' GemmaForCausalLM, read 2026-11).
//
// Traps: the embedding's rows are multiplied by the root of their length, which is in no key. Norm
// weights have the definition's 1 added in the file. The gate is GELU in its form with tanh.
#include <cmath>

#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
void ReadGemma(const FamilyKeys&, KeysOfModel& model) {
  model.scales.embedding = std::sqrt(static_cast<double>(model.layers[0].sizes.dim));
}
}  // namespace

const Family kGemma = {.name = "gemma",
                       .number = 13,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kNone,
                       .ops = kPreNorm,
                       .gate = GateKind::kGeluTanh,
                       .read = ReadGemma};

}  // namespace larder::model::families
