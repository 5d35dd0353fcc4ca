// What reading one request costs the server, in this process and by the code that reads requests
// there: seconds of this thread's CPU and bytes of memory. For the search for requests that cost
// more than they should (test/hostile/). It measures what it is sent and judges nothing; an input
// that ends the process is a finding of the caller.
//
//   request_cost MODEL.gguf [CHAT-TEMPLATE [TOOL-PARSER]]
//
// Standard input: "PATH MASKS BYTES\n" and that many bytes of body, again and again. PATH is a
// route of the server, "text" (a line of the text stream) or "batch" (a line of a batch's file).
// MASKS: how many tokens the masks of an accepted request's grammar are made for.
// Standard output: a line of JSON for each.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/work.h"
#include "model/chat/chat_template.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "serving/answer/answer_format.h"
#include "serving/api/completion_request.h"
#include "serving/api/routes.h"
#include "serving/batch/batch_file.h"
#include "serving/batch/batch_request.h"
#include "serving/constraint/constraint.h"
#include "serving/constraint/vocabulary.h"

namespace {

// Bytes of all live blocks, and the most there were since Begin. This program has one thread.
struct Memory {
  size_t live = 0, most = 0;
  void Begin() { most = live; }
  void Add(void* block) {
    live += malloc_usable_size(block);
    most = std::max(most, live);
  }
  void Remove(void* block) { live -= malloc_usable_size(block); }
} memory;

void* Allocate(size_t bytes, size_t alignment) {
  void* block = alignment <= alignof(std::max_align_t)
                    ? std::malloc(bytes)
                    : aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  memory.Add(block);
  return block;
}
void Free(void* block) {
  if (block == nullptr) return;
  memory.Remove(block);
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 1); }
void* operator new[](size_t bytes) { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { Free(block); }
void operator delete[](void* block) noexcept { Free(block); }
void operator delete(void* block, size_t) noexcept { Free(block); }
void operator delete[](void* block, size_t) noexcept { Free(block); }
void operator delete(void* block, std::align_val_t) noexcept { Free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { Free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { Free(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { Free(block); }

namespace larder::bench {
namespace {

using nlohmann::json;
using serving::CompletionDefaults;
using serving::GenerationSpec;
using serving::TokenId;

constexpr size_t kContext = 131'072;  // a prompt of a megabyte fits it

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

CompletionDefaults DefaultsOf(const model::GgufFile& file, const std::string& chat_template,
                              const std::string& tool_parser) {
  CompletionDefaults defaults;
  defaults.tokenizer = model::Tokenizer::FromGguf(file);
  defaults.chat_template = model::ChatTemplate::Named(chat_template, *defaults.tokenizer);
  const auto format = serving::AnswerFormatByName(tool_parser);
  defaults.answer_format =
      format ? *format : serving::DetectAnswerFormat(defaults.chat_template->source());
  defaults.vocab = model::ReadModelConfig(file).vocab;
  defaults.context = kContext;
  defaults.longest_token_bytes = serving::LongestTokenBytes(*defaults.tokenizer);
  defaults.model = "model";
  defaults.pooling = model::Pooling::kMean;
  return defaults;
}

// What came of a request: its first generation, or why there is none.
struct Outcome {
  std::vector<GenerationSpec> specs;
  std::string refused;
};

// As the threads of the server read it.
Outcome Read(const std::string& path, const std::string& body, const CompletionDefaults& defaults) {
  const Work work;
  Outcome outcome;
  if (path == "batch") {
    serving::CheckBatchLine(serving::ReadBatchLine(body), defaults);
    return outcome;
  }
  const serving::Route* route = path == "text" ? nullptr : serving::FindRoute(path);
  const serving::Dialect dialect = route == nullptr ? serving::Dialect::kNative : route->dialect;
  if (route != nullptr && route->action != serving::Action::kGenerate) {
    if (route->action == serving::Action::kTokenize) {
      const serving::Json asked = serving::ParseJson(body);
      defaults.tokenizer->Encode(serving::JsonFields(asked).String("content", ""), false, true);
      return outcome;
    }
    serving::CompletionRequest request =
        serving::ReadCompletionRequest(serving::ParseJson(body), dialect, defaults);
    if (route->action == serving::Action::kApplyTemplate) {
      model::JoinPieces(serving::RenderedChat(request, defaults));
    } else {
      serving::CountPromptTokens(request, defaults);
    }
    return outcome;
  }
  serving::PreparedRequest prepared;
  prepared.text = body;
  prepared.dialect = dialect;
  prepared.Run(defaults);
  if (prepared.refused) outcome.refused = prepared.refused->what();
  outcome.specs = std::move(prepared.specs);
  return outcome;
}

struct Masks {
  double longest_s = 0, all_s = 0;
  size_t made = 0;
  bool too_much = false;
};

// The masks of a text that chooses among the allowed tokens by its own random numbers.
Masks MakeMasks(const GenerationSpec& spec, size_t count,
                const std::shared_ptr<const serving::Vocabulary>& vocabulary) {
  Masks masks;
  uint32_t random = 1;
  const double begin = ThreadSeconds();
  serving::Constraint constraint(std::make_shared<serving::Automaton>(spec.grammar, vocabulary),
                                 {});
  std::vector<uint64_t> mask(vocabulary->words());
  for (; masks.made < count; ++masks.made) {
    const double start = masks.made == 0 ? begin : ThreadSeconds();
    const auto allowed = constraint.Mask(mask);
    masks.longest_s = std::max(masks.longest_s, ThreadSeconds() - start);
    masks.too_much = allowed == serving::Constraint::Allowed::kTooMuchWork;
    if (allowed != serving::Constraint::Allowed::kSome) break;
    std::vector<TokenId> tokens;
    for (TokenId token = 0; static_cast<size_t>(token) < vocabulary->size(); ++token) {
      if ((mask[static_cast<size_t>(token) / 64] >> static_cast<size_t>(token) % 64 & 1) != 0 &&
          !vocabulary->IsEnd(token))
        tokens.push_back(token);
    }
    if (tokens.empty()) break;
    random = random * 1664525 + 1013904223;
    if (!constraint.Accept(tokens[(random >> 8) % tokens.size()])) break;
  }
  masks.all_s = ThreadSeconds() - begin;
  return masks;
}

json Measure(const std::string& path, const std::string& body, size_t masks,
             const CompletionDefaults& defaults,
             const std::shared_ptr<const serving::Vocabulary>& vocabulary) {
  json result;
  const size_t before = memory.live;
  memory.Begin();
  {
    Outcome outcome;
    const double begin = ThreadSeconds();
    try {
      outcome = Read(path, body, defaults);
    } catch (const Error& error) {  // a Refused is one
      outcome.refused = error.what();
    }
    result["read_s"] = ThreadSeconds() - begin;
    result["read_bytes"] = memory.most - before;
    result["refused"] = outcome.refused.substr(0, 300);
    if (masks > 0 && !outcome.specs.empty() && outcome.specs[0].grammar != nullptr) {
      memory.Begin();
      const size_t live = memory.live;
      const Masks made = MakeMasks(outcome.specs[0], masks, vocabulary);
      result["mask_s"] = made.longest_s;
      result["masks_s"] = made.all_s;
      result["masks"] = made.made;
      result["mask_bytes"] = memory.most - live;
      result["too_much"] = made.too_much;
    }
  }
  result["kept_bytes"] = memory.live - std::min(before, memory.live);
  return result;
}

int Run(const std::vector<std::string>& args) {
  const auto file = model::GgufFile::Open(args[0]);
  const CompletionDefaults defaults =
      DefaultsOf(*file, args.size() > 1 ? args[1] : "chatml", args.size() > 2 ? args[2] : "");
  const auto vocabulary =
      std::make_shared<const serving::Vocabulary>(*defaults.tokenizer, defaults.vocab);
  std::cout << "ready" << std::endl;
  std::string path, body;
  size_t masks = 0, bytes = 0;
  while (std::cin >> path >> masks >> bytes) {
    std::cin.get();
    body.resize(bytes);
    if (!std::cin.read(body.data(), static_cast<std::streamsize>(bytes))) break;
    const json result = Measure(path, body, masks, defaults, vocabulary);
    std::cout << result.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: request_cost MODEL.gguf [CHAT-TEMPLATE [TOOL-PARSER]]\n";
    return 2;
  }
  return larder::bench::Run({argv + 1, argv + argc});
}
