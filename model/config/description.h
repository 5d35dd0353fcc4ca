// The description of a model: everything besides the weights that its computation depends on, as
// text. Models with equal tensors are the same model only if their descriptions are equal, too.
// Set-up code.
#pragma once

#include <string>

#include "model/config/config.h"

namespace larder::model::inline config {

// One property a line, its name first: "rope.base 10000". Numbers are exact. It does not contain
// the model's name or part, so it is the same whether the model came in one file, in several, or as
// a part that `larder split` wrote. A new field of ModelConfig that is missing here does not
// compile.
std::string DescriptionOf(const ModelConfig& config);

// How two descriptions differ, for messages: "rope.base 20000, not rope.base 10000"; empty if they
// are equal.
std::string DescriptionDifference(const std::string& is, const std::string& expected);

}  // namespace larder::model::config
