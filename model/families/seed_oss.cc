// Seed-OSS (ByteDance; transformers' SeedOssForCausalLM, read 2026-11).
//
// Traps: post_attention_norm is the norm before the FFN, not one of attention's output.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr LayerTraits::Renamed kSeedOssNames[] = {
    {TensorRole::kFfnNorm, "post_attention_norm.weight"}};
}

const Family kSeedOss = {.name = "seed_oss",
                         .number = 4,
                         .pairing = RopePairing::kHalves,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kNone,
                         .ops = kPreNorm,
                         .renamed = kSeedOssNames,
                         .sample = {.qkv_bias = true}};

}  // namespace larder::model::families
