// Makes a conversation fit the context, as Ollama's API has it. No state; any thread.
#pragma once

#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

// A conversation that is longer than the context loses its oldest messages. System messages stay,
// and so does the end: from a message of the user on if that fits, else from a later one of the
// assistant, at least the last message. Room for an answer is left (a quarter of the context, or
// what the answer may have), so that a growing conversation is not cut, and computed, anew with
// each turn. A conversation that cannot fit stays as it is. Spends Work.
void ShortenConversation(CompletionRequest& request, const CompletionDefaults& defaults);

}  // namespace larder::serving::api
