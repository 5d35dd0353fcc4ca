#include "serving/metrics/experts.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace larder::serving::inline metrics {

using json = nlohmann::json;

json ExpertsJson(const std::vector<ExpertCounts>& layers) {
  json out = json::array();
  for (const ExpertCounts& of : layers) {
    out.push_back({{"layer", of.layer},
                   {"experts_used", of.used},
                   {"steps", of.steps},
                   {"experts_per_step", of.active_per_step()},
                   {"skew", of.skew()},
                   {"reuse", of.reuse()},
                   {"rows", of.rows}});
  }
  return {{"object", "larder.experts"}, {"layers", std::move(out)}};
}

std::string ExpertsText(const std::vector<ExpertCounts>& layers) {
  std::string out =
      "# HELP larder_expert_rows_total Tokens for which a layer's router chose the expert.\n"
      "# TYPE larder_expert_rows_total counter\n";
  for (const ExpertCounts& of : layers) {
    for (size_t expert = 0; expert < of.rows.size(); ++expert) {
      fmt::format_to(std::back_inserter(out),
                     "larder_expert_rows_total{{layer=\"{}\",expert=\"{}\"}} {}\n", of.layer,
                     expert, of.rows[expert]);
    }
  }
  return out;
}

}  // namespace larder::serving::metrics
