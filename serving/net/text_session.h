// TextSession: the text stream (docs/text-stream.md) on one connection: a line of plain text is a prompt,
// whose answer is raw text and then the end; a line that begins with "{" is a JSON request, answered by lines
// of JSON, many of them at once if the client likes. I/O thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serving/net/server_state.h"
#include "serving/net/session.h"

namespace larder::serving {

struct TextLimits {
  size_t line_bytes = size_t{1} << 20;
  size_t requests = 16;  // at once on a connection
  // Of a line until a key was shown, where one is wanted: it may be longer if the key is among them.
  size_t bytes_before_key = size_t{8} << 10;
};

class TextSession : public Session {
 public:
  TextSession(Wire&, ServerState&, const TextLimits&);
  ~TextSession() override;

  void OnBytes(std::string_view bytes) override;
  void OnEndOfInput() override;
  Turn turn() const override;
  bool wants_bytes() const override;
  size_t held_bytes() const override { return input_.size(); }
  uint64_t requests() const override { return requests_; }
  void OnTurn() override;
  void OnNoRoom(Scope) override;
  void OnTimeout() override;

 private:
  struct Plain;
  struct Asked;
  struct PreparedLine;

  void Proceed();
  void AskLater();
  bool ShowsKey(std::string_view beginning);
  void OnLine(std::string line);
  void Take(PreparedLine&);
  size_t input_bytes() const { return input_.size() - at_; }
  void TakePlain(PreparedLine&);
  void TakeJson(PreparedLine&);
  void Ask(PreparedLine&, const nlohmann::json& id);
  void Cancel(const nlohmann::json& id);
  void Remove(const Asked*);
  void CloseIfDone();
  void WriteLine(const nlohmann::json& id, nlohmann::json object);
  void WriteError(const nlohmann::json& id, int status, std::string_view message, std::string_view param);
  void FailPlain(int status, const std::string& why);
  void FailProtocol(const char* what);

  Wire& wire_;
  ServerState& state_;
  const TextLimits limits_;
  std::string input_;   // what is not a line yet, or has to wait for one that is being prepared
  size_t at_ = 0;       // of input_: the next line begins here
  size_t scanned_ = 0;  // from there on, without a line end
  JobTicket ticket_;    // of the line that is being prepared
  uint64_t requests_ = 0;
  std::unique_ptr<Plain> plain_;
  std::vector<std::unique_ptr<Asked>> asked_;
  std::shared_ptr<TextSession*> self_ = std::make_shared<TextSession*>(this);  // null once we are gone
  uint64_t next_id_ = 1;
  bool preparing_ = false, proceeding_ = false, later_ = false;
  std::optional<Tenant> tenant_;  // who showed a key, or need not
  bool end_of_input_ = false, closed_ = false;
};

// What the line is: a request in JSON, a prompt, or nothing at all. Exposed for tests.
enum class LineKind { kBlank, kJson, kPlain };
LineKind KindOfLine(std::string_view line);
// The string "api_key" of the JSON object that begins so, as far as it is there.
std::optional<std::string> FindApiKey(std::string_view beginning);
bool IsUtf8(std::string_view text);
// The line of a client that takes this for another port; null: it is none.
const char* OtherProtocol(std::string_view line);

}  // namespace larder::serving
