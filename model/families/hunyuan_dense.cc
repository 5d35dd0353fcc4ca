// Hunyuan, dense (Tencent; transformers' HunYuanDenseV1ForCausalLM, read 2026-11).
//
// Traps: q and k are normalised after their rotation. NTK's alpha is a part of rope.freq_base in
// the file.
#include "model/families/family.h"

namespace larder::model::inline families {
const Family kHunyuanDense = {.name = "hunyuan-dense",
                              .number = 7,
                              .pairing = RopePairing::kHalves,
                              .qkv_bias = Family::QkvBias::kWhereInFile,
                              .qk_norm = QkNorm::kHeadAfterRope,
                              .ops = kPreNorm};

}  // namespace larder::model::families
