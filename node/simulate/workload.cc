#include "node/simulate/workload.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <string_view>

#include "base/error.h"
#include "node/loadgen/arrivals.h"

namespace larder::node::inline simulate {
namespace {

// The next word of a line as a number of at least `least`; false: there is none.
template <typename Number>
bool TakeNumber(std::string_view& line, Number least, Number& number) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  line.remove_prefix(word.size());
  const char* end = word.data() + word.size();
  const auto [stop, failed] = std::from_chars(word.data(), end, number);
  return failed == std::errc() && stop == end && number >= least;
}

constexpr double kMostSeconds = 1e9;  // so that nanoseconds fit 64 bits

}  // namespace

std::vector<PlannedRequest> MakeWorkload(const WorkloadSpec& spec) {
  const std::vector<int64_t> at_ns =
      loadgen::Arrivals(spec.requests, spec.requests_per_s, spec.seed);
  std::mt19937_64 random(~spec.seed);
  const auto length = [&](size_t mean) {
    const auto spread = static_cast<size_t>(static_cast<double>(mean) * spec.range);
    return std::max<size_t>(1, mean - spread + random() % (2 * spread + 1));
  };
  std::vector<PlannedRequest> requests;
  requests.reserve(at_ns.size());
  for (const int64_t at : at_ns) {
    const size_t prompt = length(spec.prompt_tokens);
    requests.push_back({at, prompt, length(spec.answer_tokens)});
  }
  return requests;
}

std::vector<PlannedRequest> WorkloadOfFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error("can't read the requests of '{}': {}", path, std::strerror(errno));
  std::vector<PlannedRequest> requests;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    std::string_view rest = line;
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (rest.empty() || rest.starts_with('#')) continue;
    double at_s = 0;
    PlannedRequest request;
    if (!TakeNumber(rest, 0.0, at_s) || at_s > kMostSeconds ||
        !TakeNumber<size_t>(rest, 1, request.prompt_tokens) ||
        !TakeNumber<size_t>(rest, 1, request.answer_tokens) ||
        rest.find_first_not_of(" \t") != std::string_view::npos) {
      throw Error(
          "{}, line {}: '{}' is not a request; expected seconds from the beginning, tokens of the "
          "prompt and tokens of the answer, such as 0.25 200 64",
          path, number, line);
    }
    request.at_ns = std::llround(at_s * 1e9);
    requests.push_back(request);
  }
  if (requests.empty()) throw Error("'{}' has no requests; expected one per line", path);
  std::ranges::stable_sort(requests, {}, &PlannedRequest::at_ns);
  return requests;
}

void CheckContext(const std::vector<PlannedRequest>& requests, size_t context) {
  for (const PlannedRequest& request : requests) {
    if (request.prompt_tokens + request.answer_tokens <= context) continue;
    throw Error(
        "a prompt of {} tokens with an answer of {} exceeds the context of {} tokens; give a "
        "larger -c, or shorter requests",
        request.prompt_tokens, request.answer_tokens, context);
  }
}

}  // namespace larder::node::simulate
