// What a request's text is generated with, as llama-server shows it. No state; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "serving/api/completion_request.h"

namespace larder::serving::inline reply {

// The sampling parameters under llama-server's names, without seed and biases.
nlohmann::json SamplingJson(const SamplingParams&);
// `generation_settings`. A ban is a bias null. What Larder does not have is there as switched off.
nlohmann::json SettingsJson(const GenerationSpec&, const CompletionRequest&);

}  // namespace larder::serving::reply
