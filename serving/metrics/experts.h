// What the routers of a model with experts choose, for the page (GET /v1/larder/experts) and, where
// somebody wants a series for each expert, for Prometheus (GET /metrics/experts).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/expert_counts.h"

namespace larder::serving::inline metrics {

// layers: those that have experts.
nlohmann::json ExpertsJson(const std::vector<ExpertCounts>& layers);
// The same in the text format of /metrics: larder_expert_rows_total{layer,expert}.
std::string ExpertsText(const std::vector<ExpertCounts>& layers);

}  // namespace larder::serving::metrics
