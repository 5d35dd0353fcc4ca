// From a conversation to the prompt of its answer: the template's text, its tokens, how the answer
// will be read, and what the answer must match. No state; any thread.
#pragma once

#include <string>
#include <vector>

#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

// Tokenizes a chat, and sets what depends on its prompt: request.answer, and of the spec
// the grammar and which tokens are shown. Throws Refused.
std::vector<TokenId> ChatTokens(CompletionRequest& request, const CompletionDefaults& defaults);

// Refuses a text that cannot fit by its bytes alone, so that megabytes are not tokenized only to be
// counted.
void CheckTextFits(size_t bytes, const std::string& field, const CompletionDefaults& defaults);

}  // namespace larder::serving::api
