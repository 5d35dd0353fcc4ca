#include "serving/api/routes.h"

#include <algorithm>
#include <array>

namespace larder::serving::inline api {
namespace {

constexpr Route Generates(std::string_view path, Dialect dialect) {
  return {.method = "POST", .path = path, .action = Action::kGenerate, .dialect = dialect};
}
constexpr Route Counts(std::string_view path, Dialect dialect) {
  return {.method = "POST",
          .path = path,
          .action = Action::kCountTokens,
          .dialect = dialect,
          .is_public = false,
          .reads_body = true};
}
constexpr Route Shows(std::string_view path, Action action, bool is_public = false) {
  return {.method = "GET", .path = path, .action = action, .is_public = is_public};
}
constexpr Route Reads(std::string_view path, Action action, Dialect dialect = Dialect::kNative) {
  return {.method = "POST",
          .path = path,
          .action = action,
          .dialect = dialect,
          .is_public = false,
          .reads_body = true};
}

// Each method does something else: serving/net/batch_routes.h, serving/stored/stored_responses.h.
constexpr Route Keeps(std::string_view path, Action action, bool is_slow = false) {
  return {.method = "GET", .path = path, .action = action, .is_slow = is_slow};
}

constexpr std::array kRoutes = {
    // OpenAI
    Generates("/v1/chat/completions", Dialect::kChat),
    Generates("/chat/completions", Dialect::kChat),
    Counts("/v1/chat/completions/input_tokens", Dialect::kChat),
    Counts("/chat/completions/input_tokens", Dialect::kChat),
    Generates("/v1/completions", Dialect::kCompletion),
    Generates("/v1/responses", Dialect::kResponses),
    Generates("/responses", Dialect::kResponses),
    Counts("/v1/responses/input_tokens", Dialect::kResponses),
    Keeps("/v1/responses/", Action::kStored, true),
    Keeps("/responses/", Action::kStored, true),
    Shows("/v1/models", Action::kModels, true),
    Shows("/models", Action::kModels, true),
    Shows("/v1/models/", Action::kModel),
    Generates("/v1/embeddings", Dialect::kEmbeddings),
    Generates("/embeddings", Dialect::kNativeEmbedding),
    Generates("/embedding", Dialect::kNativeEmbedding),
    Generates("/v1/rerank", Dialect::kRerank),
    Generates("/v1/reranking", Dialect::kRerank),
    Generates("/rerank", Dialect::kRerank),
    Generates("/reranking", Dialect::kRerank),
    Keeps("/v1/files", Action::kFiles),
    Keeps("/v1/files/", Action::kFiles),
    Keeps("/v1/batches", Action::kBatches),
    Keeps("/v1/batches/", Action::kBatches),
    // Anthropic
    Generates("/v1/messages", Dialect::kMessages),
    Counts("/v1/messages/count_tokens", Dialect::kMessages),
    // llama-server
    Generates("/completion", Dialect::kNative),
    Generates("/completions", Dialect::kNative),
    Generates("/infill", Dialect::kInfill),
    Reads("/apply-template", Action::kApplyTemplate, Dialect::kChat),
    Reads("/tokenize", Action::kTokenize),
    Reads("/detokenize", Action::kDetokenize),
    Shows("/props", Action::kProps),
    Shows("/tokenizer_info", Action::kTokenizerInfo),  // vLLM
    Shows("/slots", Action::kSlots),
    Route{.method = "POST", .path = "/slots/", .action = Action::kSlotAction, .is_slow = true},
    Shows("/health", Action::kHealth, true),
    Shows("/v1/health", Action::kHealth, true),
    Shows("/metrics", Action::kMetrics),
    Shows("/metrics/experts", Action::kExpertMetrics),
    // Ollama
    Generates("/api/chat", Dialect::kOllamaChat),
    Generates("/api/generate", Dialect::kOllamaGenerate),
    Shows("/api/tags", Action::kOllamaTags),
    Shows("/api/ps", Action::kOllamaPs),
    Shows("/api/version", Action::kOllamaVersion, true),
    Reads("/api/show", Action::kOllamaShow),
    Generates("/api/embed", Dialect::kOllamaEmbed),
    Generates("/api/embeddings", Dialect::kOllamaEmbedding),
    // Larder
    Shows("/v1/larder/plan", Action::kPlan),
    Shows("/v1/larder/status", Action::kStatus),
    Shows("/v1/larder/experts", Action::kExperts),
};

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

const Route* FindRoute(std::string_view path) {
  const auto* found = std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& route) {
    return route.path.ends_with('/') ? path.starts_with(route.path) : path == route.path;
  });
  return found == kRoutes.end() ? nullptr : found;
}

ErrorShape ErrorShapeOf(std::string_view path) {
  if (path.starts_with("/v1/messages")) return ErrorShape::kAnthropic;
  return path.starts_with("/api/") ? ErrorShape::kOllama : ErrorShape::kOpenAi;
}

}  // namespace larder::serving::api
