// The settings with which a request's text is generated, as llama-server shows them. No state; any
// thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "serving/api/completion_request.h"

namespace larder::serving::inline reply {

// The sampling parameters under llama-server's names, without seed and biases.
nlohmann::json SamplingJson(const SamplingParams&);
// `generation_settings`. A ban is a bias of null. Settings that Larder does not have are shown as
// switched off.
nlohmann::json SettingsJson(const GenerationSpec&, const CompletionRequest&);

}  // namespace larder::serving::reply
