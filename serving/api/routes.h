// The table of HTTP routes, the only place that says which paths exist, what they do, in which
// dialect, and who may use them. serving/net answers them; serving/batch takes requests of some of
// them. Constant; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "serving/api/dialect.h"

namespace larder::serving::inline api {

enum class Action : uint8_t {
  kGenerate,       // an answer of the model, in the route's dialect
  kCountTokens,    // the tokens of the prompt that kGenerate would use
  kApplyTemplate,  // that prompt as a text
  kHealth,
  kModels,
  kModel,
  kMetrics,
  kExpertMetrics,
  kPlan,
  kStatus,
  kExperts,
  kProps,
  kSlots,
  kSlotAction,
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kOllamaTags,
  kOllamaShow,
  kOllamaPs,
  kOllamaVersion,
  kFiles,    // OpenAI's files, of jobs: several methods
  kBatches,  // the jobs: several methods
  kStored,   // OpenAI's stored responses: several methods
};

struct Route {
  std::string_view method;
  std::string_view path;  // with a final '/': all paths below it too
  Action action;
  Dialect dialect = Dialect::kNative;  // kGenerate, kCountTokens, kApplyTemplate
  bool is_public = false;              // needs no key: it says whether the server is up
  bool reads_body = false;  // uses no changing state but the request's body, so any thread may
                            // answer it
  bool is_slow = false;     // never answered on the I/O thread
};

std::span<const Route> Routes();
const Route* FindRoute(std::string_view path);  // nullptr: there is none
// The form of errors of a route, or of a path without a route.
ErrorShape ErrorShapeOf(std::string_view path);

}  // namespace larder::serving::api
