// What steps read of the weights, for people: of a stage, or of all stages together.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "model/config/config.h"

namespace larder::pipeline::inline plan {

// bytes: what a step of so many rows reads; of 0 rows, what every step reads
// (StagePlan::ReadBytes). Empty if that is the same for any number of rows, since no layer has
// experts.
std::string ReadText(const model::ModelConfig& config, const std::function<double(size_t)>& bytes);

}  // namespace larder::pipeline::plan
