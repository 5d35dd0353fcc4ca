#include "node/tasks/chat_session.h"

#include <cstdio>
#include <ctime>
#include <optional>

#include "base/error.h"
#include "node/options/terminal.h"
#include "node/service/signals.h"

namespace larder::node::inline tasks {
namespace {

void Hint(std::string_view text) {
  if (StdinIsTerminal()) fmt::print(stderr, "{}\n", text);
}

class Chat {
 public:
  Chat(Generator& generator, const model::Tokenizer& tokenizer, const ChatSessionOptions& options)
      : generator_(generator), tokenizer_(tokenizer), options_(options) {
    Clear();
  }

  void Clear() {
    generator_.Clear();
    input_.messages = nlohmann::ordered_json::array();
    if (!options_.system.empty()) Add("system", options_.system);
    if (!options_.think) input_.kwargs["enable_thinking"] = false;
  }

  // Answers a message; false if the program is to end.
  bool Answer(const std::string& text) {
    Add("user", text);
    input_.now_s = std::time(nullptr);
    const auto prompt =
        tokenizer_.EncodePieces(options_.chat_template->Render(input_), tokenizer_.wants_bos());
    if (prompt.size() >= generator_.context()) {
      fmt::print(stderr,
                 "the conversation's {} tokens fill the context of {}: /clear starts anew, or "
                 "start with a larger -c\n",
                 prompt.size(), generator_.context());
      input_.messages.erase(input_.messages.size() - 1);
      return true;
    }
    ClearInterrupts();
    std::string answer;
    const GeneratorStats stats =
        generator_.Run(prompt, options_.generate, [&](std::string_view piece) {
          answer += piece;
          fmt::print("{}", piece);
          std::fflush(stdout);
        });
    fmt::print("\n");
    std::fflush(stdout);
    Add("assistant", answer);
    if (stats.reason == serving::FinishReason::kContextFull) {
      fmt::print(
          stderr,
          "the context of {} tokens is full: /clear starts anew, or start with a larger -c\n",
          generator_.context());
    }
    fmt::print(stderr, "[{} + {} tokens, TTFT {:.1f} ms, {:.1f} tok/s]\n",
               stats.prompt_tokens - stats.cached_tokens, stats.generated_tokens,
               1e3 * stats.ttft_s, stats.decode_tokens_per_s());
    return Interrupts() < 2 && !Terminated();
  }

 private:
  void Add(const char* role, const std::string& text) {
    input_.messages.push_back({{"role", role}, {"content", text}});
  }

  Generator& generator_;
  const model::Tokenizer& tokenizer_;
  const ChatSessionOptions& options_;
  model::ChatInput input_;
};

}  // namespace

int RunChat(Generator& generator, const model::Tokenizer& tokenizer,
            const ChatSessionOptions& options) {
  Chat chat(generator, tokenizer, options);
  Hint("/exit or Ctrl-D ends, /clear starts anew, Ctrl-C ends an answer.");
  if (!options.first_message.empty() && !chat.Answer(options.first_message))
    return InterruptExitCode();
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
