// The ModelConfig that a synthetic file of a shape would have, without the file: for plans.
#pragma once

#include <string>

#include "model/config.h"
#include "model/synth.h"

namespace larder::node {

model::ModelConfig ConfigOfShape(const model::ModelShape& shape, const std::string& name);

}  // namespace larder::node
