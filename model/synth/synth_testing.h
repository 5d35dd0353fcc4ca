// Test support: a synthetic model's file as a string.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "model/gguf/gguf_testing.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {

inline std::string Bytes(const SynthOptions& options) {
  const testing::TempFile temp;
  WriteSynth(options, temp.path());
  std::ifstream in(temp.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace larder::model::synth
