// A model in parts: one GGUF file per pipeline stage with the tensors of its layers, and one for
// serving with embedding, output norm and lm_head. Each part has all of the model's metadata. Its
// tensors keep the names and bytes that they have in the whole file, and keys larder.split.* say
// which part it is. Set-up code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf.h"

namespace larder::model::inline config {

// Reads the keys larder.split.*; nullopt if there are none, so that the file is a whole model.
// Throws Error for invalid values. `layers` is the model's number of layers.
std::optional<ModelPart> ReadPart(const GgufFile& file, size_t layers);

// Throws Error if the file is a part whose keys describe another model than the one that was split,
// or do not say which: equal tensors are not enough to be parts of one model.
void CheckIsAsSplit(const GgufFile& file, const ModelConfig& config);

// Throws Error if the file is a part that lacks these layers, or (serving) the embedding and
// lm_head; the message has the part and what is needed.
void CheckHolds(const GgufFile& file, const ModelConfig& config, size_t first_layer, size_t layers,
                bool serving);

// A hash of the whole model's tensors, and of nothing else (what is computed from them depends on
// the model's description, too: pipeline::IdentityOf): name, type, shape and sixteen rows of each,
// spread from the first row to the last. It distinguishes files of the same shape with other
// weights: another training or fine-tune changes most rows of some tensor. It is computed at start,
// so it is not a checksum: a few damaged rows are not detected (the checksums of `larder-cluster
// push` detect them), and it does not stop an attacker from making another file with the same hash.
// A part stores the whole model's hash from when it was split; its own rows are not checked against
// it.
uint64_t Fingerprint(const GgufFile& file);

// For display: "stage 1 of 2: layers 14-27", "serving, of 2 stages", "a whole model".
std::string Describe(const ModelPart& part);

struct SplitStage {
  std::string path;  // the file to write
  size_t first_layer = 0, layers = 0;
};
// Writes the parts; each file appears complete or not at all. The stages must hold every layer
// exactly once, in order. Throws Error if `file` is not a whole model that Larder runs, or if a
// file can't be written.
void WriteSplit(const GgufFile& file, const std::vector<SplitStage>& stages,
                const std::string& serving_path, const WriteProgress& progress = {});

}  // namespace larder::model::config
