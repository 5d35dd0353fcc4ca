// SmolLM3 (Hugging Face; transformers' SmolLM3ForCausalLM, read 2026-11).
//
// Traps: each fourth layer does not rotate its queries and keys; no key says so.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr size_t kSmolLm3Interval = 4;

void ReadSmolLm3(const FamilyKeys&, KeysOfModel& model) {
  for (size_t i = kSmolLm3Interval - 1; i < model.layers.size(); i += kSmolLm3Interval)
    model.layers[i].rotary = RotarySpec();
}
}  // namespace

const Family kSmolLm3 = {.name = "smollm3",
                         .number = 5,
                         .pairing = RopePairing::kInterleaved,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kNone,
                         .ops = kPreNorm,
                         .read = ReadSmolLm3};

}  // namespace larder::model::families
