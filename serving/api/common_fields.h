// The fields that the requests of several dialects share: sampling, limits, stops, streaming. No
// state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

// Throws Refused (404) for the name of another model, if names matter.
void CheckModel(const std::string& name, Dialect dialect, const CompletionDefaults& defaults);
// Sampling parameters under OpenAI's, llama-server's and vLLM's names, seed, ignore_eos,
// cache_salt.
void ReadSampling(const JsonFields& fields, const CompletionDefaults& defaults,
                  CompletionRequest& request);
// A string or a list of strings.
std::vector<std::string> ReadStops(const char* name, const Json& field);
// What the text must match: response_format, json_schema, grammar, vLLM's guided_*
// (serving/fields/constraints.h).
void ReadForm(const JsonFields& fields, CompletionRequest& request);
// The same for a response_format that the dialect has in a field of another name.
void SetForm(const Json& format, const char* name, CompletionRequest& request);
// The limit of tokens: the last of these fields that is there. -1, in Ollama's dialects any below
// 0: none.
void ReadLimit(const JsonFields& fields, std::initializer_list<const char*> names,
               const CompletionDefaults& defaults, CompletionRequest& request);
// A client's id in messages that are OpenAI's: between single quotes.
std::string Quoted(const std::string& id);
// A string, an array of token ids, or an array of these.
std::vector<Prompt> ReadPrompts(const Json& field, const CompletionDefaults& defaults);

}  // namespace larder::serving::api
