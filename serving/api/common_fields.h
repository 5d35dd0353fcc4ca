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
// Fields that only llama-server's requests have: the slot, other limits, what is shown of the
// answer.
void ReadNative(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request);
// A client's id as OpenAI's messages show it: in single quotes.
std::string Quoted(const std::string& id);
// How texts of prompts become tokens where a prompt is not just a text.
struct PromptForm {
  bool parse_special = true;
  bool adds_eos = false;  // adds EOS behind a text that ends the prompt, if the file wants it
  bool parts = false;     // {"content": [{"type": "text", "text": ...}]} is a prompt too
};
// Reads a text, token ids (possibly mixed with texts), or {"prompt_string": one of these}. Without
// a tokenizer (requests are then only checked) the result is a text if there is any.
Prompt ReadPrompt(const Json& field, const std::string& name, const PromptForm& form,
                  const CompletionDefaults& defaults);
// Whether it is an array of several prompts, not one of token ids.
bool IsListOfPrompts(const Json& field);
// One prompt, or an array of at most kMostChoices.
std::vector<Prompt> ReadPrompts(const Json& field, const CompletionDefaults& defaults);

}  // namespace larder::serving::api
