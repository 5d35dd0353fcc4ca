// Arcee's AFM (Arcee AI; transformers' ArceeForCausalLM, read 2026-11).
//
// Traps: the FFN has no gate: up becomes the square of its positive part. The rows of q and k are
// permuted in the file, as in `llama`.
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kArcee = {.name = "arcee",
                       .number = 62,
                       .pairing = RopePairing::kInterleaved,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kNone,
                       .ops = kPreNorm,
                       .gate = GateKind::kSquaredRelu};

}  // namespace larder::model::families
