// Falcon-H1 (Technology Innovation Institute; transformers' FalconH1ForCausalLM, read 2026-11):
// each layer has attention and a state space of Mamba-2 side by side, with one norm before both,
// and adds both to the residual.
//
// Traps: converters have multiplied the definition's multipliers into the matrices. ssm_norm is
// only in some sizes; without it the output is multiplied by its gate, no more. The norm in front
// of the FFN is called ffn_norm, without .weight. ssm_a is -exp(A) already.
#include "base/error.h"
#include "model/families/state_keys.h"

namespace larder::model::inline families {
namespace {

void ReadFalconH1(const FamilyKeys& keys, KeysOfModel& model) {
  const StateKeys states = ReadMamba2Keys(keys);
  for (KeysOfModel::Layer& layer : model.layers) {
    // Columns of attn_output and ssm_out are those of one matrix.
    if (layer.sizes.q_rows() % 32 != 0) {
      throw Error("{} is {}, expected with heads of {} a multiple of 32 in all",
                  keys.Name("attention.head_count"), layer.sizes.heads, layer.sizes.head_size);
    }
    states.ApplyBeside(layer, kPreNormBesideMamba2);
  }
}

}  // namespace

const Family kFalconH1 = {.name = "falcon-h1",
                          .number = 32,
                          .pairing = RopePairing::kHalves,
                          .qkv_bias = Family::QkvBias::kWhereInFile,
                          .qk_norm = QkNorm::kNone,
                          .ops = kPreNorm,
                          .read = ReadFalconH1,
                          .sample = {.state = StateKind::kMamba2, .group_norm = true}};

}  // namespace larder::model::families
