// The description of a model: all that its computation depends on besides the weights, as a text.
// Two models with equal tensors are one only if their descriptions are equal. Set-up code.
#pragma once

#include <string>

#include "model/config/config.h"

namespace larder::model::inline config {

// One property a line, its name first: "rope.base 10000". Numbers are exact. Of the same model it
// is the same whether the model came in one file, in several, or as a part that `larder split`
// wrote; without the model's name and the part. A field that ModelConfig gets and this does not
// know is an error of the compiler.
std::string DescriptionOf(const ModelConfig& config);

// What tells two descriptions apart, for people: "rope.base 20000, not rope.base 10000"; empty if
// they are equal.
std::string DescriptionDifference(const std::string& is, const std::string& expected);

}  // namespace larder::model::config
