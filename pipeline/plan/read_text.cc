#include "pipeline/plan/read_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace larder::pipeline::inline plan {

std::string ReadText(const model::ModelConfig& config, const std::function<double(size_t)>& bytes) {
  const bool experts = std::ranges::any_of(
      config.kinds, [](const model::LayerSpec& kind) { return kind.experts.count != 0; });
  if (!experts) return "";
  std::string text = fmt::format("every step reads {:.2f}", bytes(0) * 1e-6);
  for (const size_t rows : {1, 8, 32})
    text += fmt::format(", one of {} row{} {:.2f}", rows, rows == 1 ? "" : "s", bytes(rows) * 1e-6);
  return text + " MB";
}

}  // namespace larder::pipeline::plan
