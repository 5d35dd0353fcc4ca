// TextSession: the text stream (docs/text-stream.md) on one connection: a line of plain text is a prompt,
// whose answer is raw text and then the end; a line that begins with "{" is a JSON request, answered by lines
// of JSON, many of them at once if the client likes. I/O thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serving/server_state.h"
#include "serving/session.h"

namespace larder::serving {

struct TextLimits {
  size_t line_bytes = size_t{1} << 20;
  size_t requests = 16;  // at once on a connection
};

class TextSession : public Session {
 public:
  TextSession(Wire&, ServerState&, const TextLimits&);
  ~TextSession() override;

  void OnBytes(std::string_view bytes) override;
  void OnEndOfInput() override;
  Turn turn() const override;
  bool wants_bytes() const override { return !closed_; }
  void OnTimeout() override;

 private:
  struct Plain;
  struct Asked;

  void OnLine(std::string line);
  void OnPlain(std::string prompt);
  void OnJson(const std::string& line);
  void Ask(const nlohmann::json& body, const nlohmann::json& id);
  void Cancel(const nlohmann::json& id);
  void CheckKey(const nlohmann::json& body);
  void Remove(const Asked*);
  void CloseIfDone();
  void WriteLine(const nlohmann::json& id, nlohmann::json object);
  void FailPlain(const std::string& why);

  Wire& wire_;
  ServerState& state_;
  const TextLimits limits_;
  std::string line_;  // so far
  std::unique_ptr<Plain> plain_;
  std::vector<std::unique_ptr<Asked>> asked_;
  uint64_t next_id_ = 1;
  bool key_shown_ = false, end_of_input_ = false, closed_ = false;
};

// What the line is: a request in JSON, a prompt, or nothing at all. Exposed for tests.
enum class LineKind { kBlank, kJson, kPlain };
LineKind KindOfLine(std::string_view line);
bool IsUtf8(std::string_view text);

}  // namespace larder::serving
