// The requests of `larder simulate`: when each comes, and how long its prompt and its answer are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace larder::node::inline simulate {

struct PlannedRequest {
  int64_t at_ns = 0;  // from the beginning
  size_t prompt_tokens = 0, answer_tokens = 0;
  bool operator==(const PlannedRequest&) const = default;
};

struct WorkloadSpec {
  size_t requests = 1000;
  double requests_per_s = std::numeric_limits<double>::infinity();  // infinity: all at once
  size_t prompt_tokens = 128, answer_tokens = 128;
  // Lengths are from (1 - range) to (1 + range) of these, each as likely as the others.
  double range = 0;
  size_t seed = 0;
};
// The same spec gives the same.
std::vector<PlannedRequest> MakeWorkload(const WorkloadSpec& spec);

// A file with a request a line: seconds from the beginning, tokens of the prompt, tokens of the
// answer. Empty lines, and those that begin with #, are skipped. In the order of time. Throws Error
// if there is no file, no request, or another line.
std::vector<PlannedRequest> WorkloadOfFile(const std::string& path);

// Throws Error if a request does not fit the context.
void CheckContext(const std::vector<PlannedRequest>& requests, size_t context);

}  // namespace larder::node::simulate
