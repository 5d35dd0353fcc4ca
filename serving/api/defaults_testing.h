// Test support: defaults of requests to a tiny model, which tests change where they need to.
#pragma once

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

inline CompletionDefaults TinyDefaults() {
  CompletionDefaults defaults;
  defaults.tokenizer = model::Tokenizer::FromData(model::TinySpm());
  defaults.vocab = defaults.tokenizer->size();
  defaults.context = 64;
  defaults.longest_token_bytes = LongestTokenBytes(*defaults.tokenizer);
  defaults.model = "tiny";
  return defaults;
}

}  // namespace larder::serving::api
