#include "serving/batch/batch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/fnv.h"
#include "base/json_text.h"
#include "base/new_file.h"
#include "serving/api/routes.h"
#include "serving/reply/error_reply.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

std::string Hex(uint64_t number) { return fmt::format("{:016x}", number); }

const std::string& Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error("{} is missing: expected a string", key);
  if (!found->is_string()) throw Error("{} is {}: expected a string", key, Dump(*found));
  return found->get_ref<const std::string&>();
}

Dialect DialectOf(const std::string& url) {
  const Route* route = FindRoute(url);
  const auto is = [&](Dialect dialect) { return route->dialect == dialect; };
  if (route != nullptr && route->action == Action::kGenerate &&
      (is(Dialect::kChat) || is(Dialect::kCompletion) || is(Dialect::kResponses) ||
       is(Dialect::kEmbeddings)))
    return route->dialect;
  throw Error(
      "url is \"{}\": expected /v1/chat/completions, /v1/completions, /v1/responses or "
      "/v1/embeddings",
      url);
}

Descriptor OpenFor(const std::string& path, int flags) {
  Descriptor file(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw Error("{}: can't open: {}", path, std::strerror(errno));
  return file;
}

}  // namespace

BatchLine ReadBatchLine(std::string_view text) {
  const Json object = ParseJson(text);
  if (!object.is_object()) throw Error("expected a JSON object");
  BatchLine line;
  line.custom_id = Text(object, "custom_id");
  if (line.custom_id.empty())
    throw Error("custom_id is empty: expected a name that no other line has");
  if (const auto method = object.find("method"); method != object.end() && *method != "POST")
    throw Error("method is {}: expected \"POST\"", Dump(*method));
  line.dialect = DialectOf(Text(object, "url"));
  const auto body = object.find("body");
  if (body == object.end() || !body->is_object())
    throw Error("body is missing: expected the request's object");
  if (const auto stream = body->find("stream"); stream != body->end() && *stream != false)
    throw Error("body.stream is {}: expected false in a batch", Dump(*stream));
  line.body = Dump(*body);
  return line;
}

IdHash HashOfId(std::string_view custom_id) {
  const uint64_t high = Fnv1a(custom_id);
  return {high, Fnv1a(custom_id, high ^ 0x9e3779b97f4a7c15u)};
}

BatchInput::BatchInput(std::string path, CheckLine check, const BatchInputLimits& limits)
    : path_(std::move(path)),
      check_(std::move(check)),
      limits_(limits),
      file_(path_, std::ios::binary),
      hash_(kFnvStart) {
  if (!file_) throw Error("{}: can't open: {}", path_, std::strerror(errno));
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path_, ignored))
    throw Error(
        "{}: not a file: expected one, since it is read twice; write what comes from a pipe to a "
        "file",
        path_);
}

// Cut, since what is wrong with a line may quote all of it, and a server keeps it with the batch.
void BatchInput::AddProblem(size_t line, std::string what) {
  if (++wrong_lines_ > kMostProblems) return;
  if (what.size() > kMostProblemBytes) {
    size_t end = kMostProblemBytes;
    while (end > 0 && (static_cast<unsigned char>(what[end]) & 0xC0) == 0x80) --end;  // in UTF-8
    what = what.substr(0, end) + "...";
  }
  problems_.push_back({line, std::move(what)});
}

bool BatchInput::CheckMore(size_t lines) {
  std::string text;
  for (; lines > 0; --lines) {
    const Read read = ReadLine(text);
    if (read == Read::kEnd) {
      EndCheck();
      return true;
    }
    hash_ = Fnv1a("\n", Fnv1a(text, hash_));
    if (read == Read::kTooLong) {
      AddProblem(number_, fmt::format("longer than {} bytes", limits_.line_bytes));
      continue;
    }
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (ids_.size() == limits_.requests) {
      AddProblem(number_, fmt::format("more than {} requests; split the file", limits_.requests));
      EndCheck();
      return true;
    }
    try {
      BatchLine line = ReadBatchLine(text);
      check_(line);
      ids_.push_back({HashOfId(line.custom_id), ids_.size()});
    } catch (const Error& error) {
      AddProblem(number_, error.what());
    }
  }
  return false;
}

void BatchInput::EndCheck() {
  std::sort(ids_.begin(), ids_.end(), [](const Id& a, const Id& b) { return a.hash < b.hash; });
  const auto twice = std::adjacent_find(ids_.begin(), ids_.end(),
                                        [](const Id& a, const Id& b) { return a.hash == b.hash; });
  if (twice != ids_.end()) {
    const size_t at = std::max(twice[0].index, twice[1].index);
    AddProblem(0, fmt::format("request {} has the custom_id of an earlier one", at + 1));
  }
  if (wrong_lines_ == 0 && ids_.empty()) AddProblem(0, "the file has no requests");
  file_.clear();
  file_.seekg(0);
  number_ = 0;
}

// Keeps no more of a line than the limit: a client may send a file that is one line.
BatchInput::Read BatchInput::ReadLine(std::string& line) {
  using Traits = std::ifstream::traits_type;
  line.clear();
  ++number_;
  std::filebuf& bytes = *file_.rdbuf();
  bool any = false, too_long = false;
  try {
    for (int c = bytes.sbumpc(); c != Traits::eof(); c = bytes.sbumpc()) {
      any = true;
      if (c == '\n') break;
      if (line.size() < limits_.line_bytes) {
        line.push_back(static_cast<char>(c));
      } else {
        too_long = true;
      }
    }
  } catch (const std::ios_base::failure&) {
    throw Error("{}, line {}: can't read it: {}", path_, number_, std::strerror(errno));
  }
  return !any ? Read::kEnd : too_long ? Read::kTooLong : Read::kLine;
}

std::optional<size_t> BatchInput::Find(std::string_view custom_id) const {
  const IdHash hash = HashOfId(custom_id);
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), hash,
                                      [](const Id& a, const IdHash& b) { return a.hash < b; });
  if (found == ids_.end() || found->hash != hash) return std::nullopt;
  return found->index;
}

std::optional<BatchLine> BatchInput::Next() {
  std::string text;
  for (Read read; (read = ReadLine(text)) != Read::kEnd;) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::optional<BatchLine> line;
    try {
      if (read == Read::kLine) line = ReadBatchLine(text);
    } catch (const Error&) {  // it was good when it was checked
    }
    if (!line || Find(line->custom_id) != index_)
      throw Error("{}, line {}: changed while the job runs", path_, number_);
    line->index = index_++;
    line->number = number_;
    return line;
  }
  if (index_ != ids_.size()) throw Error("{}: cut while the job runs", path_);
  return std::nullopt;
}

void BatchJob::Save(const std::string& path) const {
  const json object = {{"version", 3},
                       {"input_hash", Hex(input_hash)},
                       {"requests", requests},
                       {"model", model},
                       {"model_fingerprint", Hex(model_fingerprint)},
                       {"engine", engine},
                       {"options", options},
                       {"seed", Hex(seed)},
                       {"created", created}};
  const std::string text = object.dump(2) + "\n";
  NewFile file(path, FileReaders::kOwner);
  file.Write(text.data(), text.size());
  file.Commit();
}

BatchJob BatchJob::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw Error("{}: can't open: {}; without it a job can't go on", path, std::strerror(errno));
  try {
    const auto object = ParseJsonText<json>(std::string(std::istreambuf_iterator<char>(file), {}));
    const auto number = [&](const char* key) {
      return std::stoull(object.at(key).get<std::string>(), nullptr, 16);
    };
    if (object.at("version") != 3) throw Error("{}: written by another version of Larder", path);
    return {.input_hash = number("input_hash"),
            .requests = object.at("requests").get<size_t>(),
            .model = object.at("model").get<std::string>(),
            .model_fingerprint = number("model_fingerprint"),
            .engine = object.at("engine").get<std::string>(),
            .options = object.at("options").get<std::string>(),
            .seed = number("seed"),
            .created = object.at("created").get<int64_t>()};
  } catch (...) {
    RethrowOfFile(path, "not the file of a batch job");
  }
}

std::string BatchJob::Differs(const BatchJob& begun) const {
  if (input_hash != begun.input_hash) return "the input has changed";
  if (model_fingerprint != begun.model_fingerprint) return "the model is another one";
  if (model != begun.model)
    return fmt::format("the model's name is \"{}\"; it was \"{}\"", model, begun.model);
  if (engine != begun.engine)
    return fmt::format("this is {}; the job was begun by {}", engine, begun.engine);
  if (options != begun.options)
    return fmt::format("the options are \"{}\"; they were \"{}\"", options, begun.options);
  return "";
}

BatchOutput BatchOutput::Create(const std::string& path) {
  return {path, OpenFor(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND)};
}

BatchOutput BatchOutput::Resume(const std::string& path, const BatchInput& input,
                                std::vector<bool>& done) {
  Descriptor file = OpenFor(path, O_WRONLY | O_CREAT | O_APPEND);
  std::ifstream before(path, std::ios::binary);
  std::string text;
  off_t whole_bytes = 0;
  for (size_t number = 1; std::getline(before, text) && !before.eof(); ++number) {
    whole_bytes += static_cast<off_t>(text.size()) + 1;
    std::optional<size_t> index;
    try {
      index = input.Find(ParseJsonText<json>(text).at("custom_id").get<std::string>());
    } catch (const std::exception&) {  // not an answer
    }
    if (!index) throw Error("{}, line {}: not an answer to a request of the input", path, number);
    done[*index] = true;
  }
  if (ftruncate(file.get(), whole_bytes) != 0)
    throw Error("{}: can't cut off its unfinished last line: {}", path, std::strerror(errno));
  return {path, std::move(file)};
}

void BatchOutput::CutUnfinished(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  off_t whole_bytes = 0;
  for (std::string text; std::getline(file, text) && !file.eof();)
    whole_bytes += static_cast<off_t>(text.size()) + 1;
  if (::truncate(path.c_str(), whole_bytes) != 0)
    throw Error("{}: can't cut off its unfinished last line: {}", path, std::strerror(errno));
}

size_t BatchOutput::Append(const BatchLine& line, int status, const json& body) {
  const std::string id = Hex(HashOfId(line.custom_id).high);
  const json object = {
      {"id", "batch_req_" + id},
      {"custom_id", line.custom_id},
      {"response", {{"status_code", status}, {"request_id", "req_" + id}, {"body", body}}},
      {"error", nullptr}};
  const std::string text = Dump(object) + "\n";
  WriteAll(file_, text, path_);
  return text.size();
}

void BatchOutput::Sync() {
  if (fdatasync(file_.get()) != 0) throw Error("{}: can't write: {}", path_, std::strerror(errno));
}

}  // namespace larder::serving::batch
