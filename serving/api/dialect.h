// The dialects: the forms in which clients ask and are answered. Everything that depends only on a
// dialect's name is here.
#pragma once

namespace larder::serving::inline api {

enum class Dialect {
  kCompletion,      // POST /v1/completions
  kChat,            // POST /v1/chat/completions
  kNative,          // POST /completion, as llama-server, and the text stream
  kInfill,          // POST /infill, as llama-server
  kResponses,       // POST /v1/responses
  kMessages,        // POST /v1/messages, as Anthropic
  kOllamaChat,      // POST /api/chat
  kOllamaGenerate,  // POST /api/generate
  // Vectors instead of text, and the relevance of documents; never streamed.
  kEmbeddings,       // POST /v1/embeddings
  kNativeEmbedding,  // POST /embedding, as llama-server
  kOllamaEmbed,      // POST /api/embed
  kOllamaEmbedding,  // POST /api/embeddings: one text
  kRerank,           // POST /v1/rerank, as Jina and llama-server
};

// How the events of a streamed answer are written.
enum class Framing {
  kMarkedSse,  // server-sent events, the last one is [DONE]
  kSse,        // server-sent events that say themselves which is the last
  kLines,      // one JSON object a line
};
constexpr Framing FramingOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kNative:
    case Dialect::kInfill:
    case Dialect::kResponses:
    case Dialect::kMessages:
      return Framing::kSse;
    case Dialect::kOllamaChat:
    case Dialect::kOllamaGenerate:
      return Framing::kLines;
    default:
      return Framing::kMarkedSse;
  }
}

constexpr bool IsOllama(Dialect dialect) {
  return dialect == Dialect::kOllamaChat || dialect == Dialect::kOllamaGenerate ||
         dialect == Dialect::kOllamaEmbed || dialect == Dialect::kOllamaEmbedding;
}

// llama-server's own forms.
constexpr bool IsNative(Dialect dialect) {
  return dialect == Dialect::kNative || dialect == Dialect::kInfill;
}

// The JSON of errors.
enum class ErrorShape { kOpenAi, kAnthropic, kOllama };

}  // namespace larder::serving::api
