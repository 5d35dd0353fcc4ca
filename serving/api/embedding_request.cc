// POST /v1/embeddings, /embedding, /api/embed, /v1/rerank: texts whose hidden states are wanted.
#include <algorithm>

#include "serving/api/chat_prompt.h"
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"

namespace larder::serving::inline api {
namespace {

constexpr size_t kMostTextBytes = size_t{16} << 20;  // limit for all texts of a request

// Nothing in a client's text is a control token. The end of text that the file wants behind each
// text is added, whether or not it wants a beginning.
constexpr PromptForm kEmbedded = {.parse_special = false, .adds_eos = true, .parts = true};

const Json& Required(const JsonFields& fields, const char* name, const char* expected) {
  const Json* field = fields.Find(name);
  if (field == nullptr) throw Refused(400, "{} is missing: expected {}", name, expected).On(name);
  return *field;
}

void AddInputs(const Json& field, const char* name, const CompletionDefaults& defaults,
               CompletionRequest& request) {
  request.prompts_field = name;
  if (!IsListOfPrompts(field)) {
    request.prompts.push_back(ReadPrompt(field, name, kEmbedded, defaults));
    return;
  }
  if (field.empty())
    JsonFields::Fail(name, field, "a string, or an array of strings or of token ids");
  if (field.size() > kMostEmbedded)
    throw Refused(400, "{} has {} texts: expected at most {}", name, field.size(), kMostEmbedded)
        .On(name);
  request.prompts_listed = true;
  for (const Json& one : field)
    request.prompts.push_back(
        ReadPrompt(one, request.NameOf(request.prompts.size()), kEmbedded, defaults));
}

std::string DocumentText(const Json& document) {
  if (document.is_string()) return document.get<std::string>();
  if (document.is_object() && document.contains("text") && document["text"].is_string())
    return document["text"].get<std::string>();
  JsonFields::Fail("documents", document, "a string, or {\"text\": \"...\"}");
}

// The file's template, in which "{query}" and "{document}" stand for the texts; without one, the
// texts with the end of text behind each.
std::vector<TokenId> PairTokens(const std::string& query, const std::string& document,
                                const CompletionDefaults& defaults) {
  const model::Tokenizer& tokenizer = *defaults.tokenizer;
  std::vector<TokenId> tokens;
  if (defaults.rank_template.empty()) {
    if (tokenizer.wants_bos()) tokens.push_back(tokenizer.bos());
    for (const std::string& text : {query, document}) {
      const std::vector<TokenId> more =
          tokenizer.Encode(text, /*add_bos=*/false, /*parse_special=*/false);
      tokens.insert(tokens.end(), more.begin(), more.end());
      if (tokenizer.eos() >= 0) tokens.push_back(tokenizer.eos());
    }
    return tokens;
  }
  std::vector<model::TextPiece> pieces;
  std::string_view rest = defaults.rank_template;
  while (!rest.empty()) {
    const size_t at = std::min(rest.find("{query}"), rest.find("{document}"));
    pieces.push_back({std::string(rest.substr(0, at)), true});
    if (at == std::string_view::npos) break;
    const bool is_query = rest.substr(at).starts_with("{query}");
    pieces.push_back({is_query ? query : document, false});
    rest.remove_prefix(at + (is_query ? sizeof "{query}" : sizeof "{document}") - 1);
  }
  return tokenizer.EncodePieces(pieces, tokenizer.wants_bos());
}

}  // namespace

void ReadEmbeddings(const JsonFields& fields, const CompletionDefaults& defaults,
                    CompletionRequest& request) {
  if (defaults.pooling == model::Pooling::kNone || defaults.pooling == model::Pooling::kRank)
    throw Refused(
        request.dialect == Dialect::kEmbeddings ? 400 : 501,  // OpenAI's clients would try again
        "{} is not an embedding model: its file does not say how to make one vector of a text; if "
        "you know, start the server with --pooling mean, cls or last",
        defaults.model);
  request.spec.pooling = defaults.pooling;
  switch (request.dialect) {
    case Dialect::kNativeEmbedding: {
      const char* name = fields.Has("input") ? "input" : "content";
      AddInputs(Required(fields, name, "a text"), name, defaults, request);
      const int64_t norm = fields.Integer("embd_normalize", 2, -1, 2);
      if (norm != 2 && norm != -1)
        JsonFields::Fail("embd_normalize", Json(norm), "2 (scaled to length 1) or -1 (unchanged)");
      request.embedding.normalize = norm == 2;
      break;
    }
    case Dialect::kOllamaEmbedding:
      if (const Json* prompt = fields.Find("prompt"); prompt != nullptr && IsEmptyText(*prompt)) {
        request.at_once = AtOnce::kNoVectors;
      } else {
        AddInputs(Required(fields, "prompt", "a text"), "prompt", defaults, request);
      }
      request.embedding.normalize = false;
      break;
    default: {
      const Json& input = Required(fields, "input", "a text, or an array of texts");
      if (request.dialect == Dialect::kOllamaEmbed && input.is_array() && input.empty()) {
        request.at_once = AtOnce::kNoVectors;
      } else {
        AddInputs(input, "input", defaults, request);
      }
    }
  }
  const std::string encoding = fields.String("encoding_format", "float");
  if (encoding != "float" && encoding != "base64")
    JsonFields::Fail("encoding_format", Json(encoding), "\"float\" or \"base64\"");
  request.embedding.base64 = encoding == "base64";
  const int64_t most = defaults.dim > 0 ? static_cast<int64_t>(defaults.dim) : int64_t{1} << 20;
  request.embedding.dimensions = static_cast<size_t>(fields.Integer("dimensions", 0, 1, most));
  fields.Ignore({"user", "truncate", "options", "keep_alive", "input_type"});
}

void ReadRerank(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request) {
  if (defaults.rank_head == nullptr)
    throw Refused(501, "{} is not a reranker: its file has no tensor cls.output.weight",
                  defaults.model);
  request.spec.pooling = model::Pooling::kRank;
  const Json& query = Required(fields, "query", "a string");
  if (!query.is_string()) JsonFields::Fail("query", query, "a string");
  // As llama-server: who asks in the words of text-embeddings-inference is answered in its form.
  request.embedding.listed = fields.Has("texts");
  const char* name = request.embedding.listed ? "texts" : "documents";
  const Json& documents = Required(fields, name, "an array of texts");
  if (!documents.is_array() || documents.empty() || documents.size() > kMostEmbedded)
    JsonFields::Fail(name, documents, fmt::format("an array of 1 to {} texts", kMostEmbedded));
  request.prompts_field = name;
  request.prompts_listed = true;
  const bool returns = fields.Bool("return_documents", false) || fields.Bool("return_text", false);
  size_t bytes = 0;
  for (const Json& one : documents) {
    std::string text = DocumentText(one);
    bytes += text.size() + query.get_ref<const std::string&>().size();
    if (bytes > kMostTextBytes)
      throw Refused(400, "{}: the query and all documents have more than {} bytes", name,
                    kMostTextBytes)
          .On(name);
    request.prompts.emplace_back(PairTokens(query.get<std::string>(), text, defaults));
    if (returns) request.embedding.documents.push_back(std::move(text));
  }
  request.embedding.top_n = static_cast<size_t>(fields.Integer(
      "top_n", static_cast<int64_t>(documents.size()), 1, static_cast<int64_t>(1) << 30));
  fields.Ignore({"user", "truncate", "raw_scores"});
}

}  // namespace larder::serving::api
