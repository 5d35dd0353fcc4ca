// The fields of a request for the samplers that are off by default, under llama-server's names. No
// state; any thread.
#pragma once

#include "serving/fields/json_fields.h"
#include "serving/sampling/sampling_params.h"

namespace larder::serving::inline fields {

// Fields that are absent keep the parameter. Ranges are checked by Validate. Throws Refused (400).
void ReadSamplers(const JsonFields& fields, SamplingParams& params);

}  // namespace larder::serving::fields
