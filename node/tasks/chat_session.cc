#include "node/tasks/chat_session.h"

#include <cstdio>
#include <ctime>
#include <optional>
#include <vector>

#include "base/error.h"
#include "node/options/terminal.h"
#include "node/service/signals.h"

namespace larder::node::inline tasks {
namespace {

// Today's date as the Llama-3 templates print it: "26 Jul 2024".
std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%d %b %Y", &local)};
}

void Hint(std::string_view text) {
  if (StdinIsTerminal()) fmt::print(stderr, "{}\n", text);
}

class Chat {
 public:
  Chat(Generator& generator, const model::Tokenizer& tokenizer, const ChatSessionOptions& options)
      : generator_(generator), tokenizer_(tokenizer), options_(options), date_(Today()) {
    Clear();
  }

  void Clear() {
    generator_.Clear();
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  // Answers a message; false if the program is to end.
  bool Answer(const std::string& text) {
    messages_.push_back({"user", text});
    model::ChatOptions render;
    render.date = date_;
    render.enable_thinking = options_.think;
    const auto prompt = tokenizer_.Encode(model::RenderChat(options_.format, messages_, render),
                                          tokenizer_.wants_bos(), /*parse_special=*/true);
    if (prompt.size() >= generator_.context()) {
      fmt::print(stderr,
                 "the conversation's {} tokens fill the context of {}: /clear starts anew, or start with a "
                 "larger -c\n",
                 prompt.size(), generator_.context());
      messages_.pop_back();
      return true;
    }
    ClearInterrupts();
    std::string answer;
    const GeneratorStats stats = generator_.Run(prompt, options_.generate, [&](std::string_view piece) {
      answer += piece;
      fmt::print("{}", piece);
      std::fflush(stdout);
    });
    fmt::print("\n");
    std::fflush(stdout);
    messages_.push_back({"assistant", answer});
    if (stats.reason == serving::FinishReason::kContextFull) {
      fmt::print(stderr, "the context of {} tokens is full: /clear starts anew, or start with a larger -c\n",
                 generator_.context());
    }
    fmt::print(stderr, "[{} + {} tokens, TTFT {:.1f} ms, {:.1f} tok/s]\n",
               stats.prompt_tokens - stats.cached_tokens, stats.generated_tokens, 1e3 * stats.ttft_s,
               stats.decode_tokens_per_s());
    return Interrupts() < 2 && !Terminated();
  }

 private:
  Generator& generator_;
  const model::Tokenizer& tokenizer_;
  const ChatSessionOptions& options_;
  std::string date_;
  std::vector<model::ChatMessage> messages_;
};

}  // namespace

int RunChat(Generator& generator, const model::Tokenizer& tokenizer, const ChatSessionOptions& options) {
  Chat chat(generator, tokenizer, options);
  Hint("/exit or Ctrl-D ends, /clear starts anew, Ctrl-C ends an answer.");
  if (!options.first_message.empty() && !chat.Answer(options.first_message)) return InterruptExitCode();
  ClearInterrupts();
  for (;;) {
    if (StdinIsTerminal()) {
      fmt::print("\n> ");
      std::fflush(stdout);
    }
    bool interrupted = false;
    const std::optional<std::string> line = ReadInputLine(&interrupted);
    if (interrupted) {
      if (Interrupts() >= 2 || Terminated()) return InterruptExitCode();
      if (Interrupts() > 0) Hint("\nCtrl-C again ends the program.");
      continue;
    }
    if (!line || *line == "/exit") return 0;
    if (*line == "/clear") {
      chat.Clear();
      Hint("forgotten.");
      continue;
    }
    if (line->empty()) continue;
    if (!chat.Answer(*line)) return InterruptExitCode();
    ClearInterrupts();
  }
}

}  // namespace larder::node::tasks
