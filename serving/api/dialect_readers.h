// The readers of the dialects that are not OpenAI's completions and chat completions: each fills in
// a request whose dialect and defaults are set. All throw Refused. No state; any thread.
#pragma once

#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

// OpenAI's Responses: input items become messages, appended to those of the turn that the request
// continues.
void ReadResponses(const JsonFields& fields, const CompletionDefaults& defaults,
                   const FindTurn& find, CompletionRequest& request);
// Anthropic's Messages: content blocks become messages, a message's tool results come first.
void ReadMessages(const JsonFields& fields, const CompletionDefaults& defaults,
                  CompletionRequest& request);
// Ollama's chat and generate.
void ReadOllama(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request);
// Texts to be embedded, in OpenAI's, llama-server's and Ollama's forms.
void ReadEmbeddings(const JsonFields& fields, const CompletionDefaults& defaults,
                    CompletionRequest& request);
// A query and the documents whose relevance to it is wanted: a prompt for each of them.
void ReadRerank(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request);
// llama-server's infill: the prompt is made of tokens.
void ReadInfill(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request);

// Removes the lines that agents put in front of a system prompt and that differ in every request
// ("x-anthropic-billing-header: ..."): nothing behind them could be found in the KV cache.
std::string WithoutChangingLines(std::string text);

}  // namespace larder::serving::api
