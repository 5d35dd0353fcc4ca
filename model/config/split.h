// A model in parts: one GGUF file for each stage of a pipeline, with the tensors of its layers, and one for
// serving, with embedding, output norm and head. Each has all of the model's metadata, under the names and
// with the bytes of the whole file, and keys larder.split.* that say which part it is. Set-up code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/gguf/gguf.h"

namespace larder::model {

// The keys larder.split.*; nothing if there are none: the file is a whole model. Error for impossible ones;
// `layers` is the model's number of layers.
std::optional<ModelPart> ReadPart(const GgufFile& file, size_t layers);

// Error if the file is a part that lacks these layers, or (serving) embedding and head: it names the part and
// what is needed.
void CheckHolds(const GgufFile& file, const ModelConfig& config, size_t first_layer, size_t layers,
                bool serving);

// Of the model that the file is, or is a part of: names, types, shapes and sixteen rows, spread from the
// first to the last, of each tensor. Tells apart files of one shape with other weights: another training or
// fine-tune, which moves most rows of some tensor. It is read at start, so it is no checksum: a few damaged
// rows are not seen (the checksums of `larder-cluster push` see them), and nobody who means harm is kept from
// making another file that has it. A part has the whole model's, as it was split; its own rows are not held
// against it.
uint64_t Fingerprint(const GgufFile& file);

// "stage 1 of 2: layers 14-27", "serving, of 2 stages", "a whole model": for people.
std::string Describe(const ModelPart& part);

struct SplitStage {
  std::string path;  // of the file to write
  size_t first_layer = 0, layers = 0;
};
// Writes the parts; each appears whole or not at all. The stages have all layers once, in order. Error if the
// model is no whole one that Larder runs, or if a file can't be written.
void WriteSplit(const GgufFile& file, const std::vector<SplitStage>& stages, const std::string& serving_path,
                const WriteProgress& progress = {});

}  // namespace larder::model
