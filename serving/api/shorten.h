// Makes a conversation fit the context, as Ollama's API has it. No state; any thread.
#pragma once

#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

// A conversation that is longer than the context loses its oldest messages: those of the system
// stay, and so does the end, from a message of the user's on if that fits, else from one of the
// assistant's behind it, at least the last message. Room for an answer is left, a quarter of the
// context or what the answer may have: a conversation that goes on is not cut, and so computed,
// anew with each turn. One that cannot fit stays as it is. Spends Work.
void ShortenConversation(CompletionRequest& request, const CompletionDefaults& defaults);

}  // namespace larder::serving::api
