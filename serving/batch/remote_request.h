// A request of a job as it is sent to a running server: with its seed and all defaults of the job,
// so that the answer does not depend on the server's options. Pure functions.
#pragma once

#include <string>

#include "serving/api/completion_request.h"
#include "serving/batch/batch_file.h"

namespace larder::serving::inline batch {

// `defaults`: for requests that leave fields out. `ignore_eos`: all texts go on beyond their end.
std::string RemoteBody(const BatchLine& line, const CompletionDefaults& defaults, uint64_t seed,
                       bool ignore_eos);
const char* RouteOf(Dialect dialect);  // "/v1/completions"

}  // namespace larder::serving::batch
