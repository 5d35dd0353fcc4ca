#include "serving/history/response_files.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/new_file.h"

namespace larder::serving::inline history {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kResponse = "resp_", kTurn = "turn_", kEnd = ".json";
constexpr size_t kMostIdBytes = 64;
constexpr int kNice = 15;  // as other threads beside the computing ones
// What a client sent is nested up to 64 deep, and lies in the file's object.
constexpr JsonLimits kLimits{.depth = 68};

// The id behind "resp_" or "turn_" and before ".json"; empty: it is not ours.
std::string_view IdIn(std::string_view name, std::string_view kind) {
  if (!name.starts_with(kind) || !name.ends_with(kEnd)) return {};
  name.remove_prefix(kind.size());
  name.remove_suffix(kEnd.size());
  const bool good = name.size() <= kMostIdBytes &&
                    name.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
  return good ? name : std::string_view();
}

KeptTurn Read(const std::string& path, std::string id) {
  std::ifstream file(path);
  if (!file) throw Error("{}: can't open: {}", path, std::strerror(errno));
  try {
    const auto value =
        ParseJsonText<Json>(std::string(std::istreambuf_iterator<char>(file), {}), kLimits);
    if (value.at("version") != 1) throw Error("{}: written by another version of Larder", path);
    if (!value.at("input").is_array() || !value.at("output").is_array())
      throw Error("{}: damaged: its items", path);
    KeptTurn turn{.id = std::move(id),
                  .previous = value.at("previous").get<std::string>(),
                  .tenant = TenantOfText(value.at("tenant")),
                  .input = value.at("input").dump(),
                  .output = value.at("output").dump(),
                  .body = {},
                  .created_ns = value.at("created_ns").get<int64_t>()};
    if (const auto body = value.find("response"); body != value.end()) turn.body = body->dump();
    return turn;
  } catch (...) {
    RethrowOfFile(path, "damaged");
  }
}

}  // namespace

ResponseFiles::ResponseFiles(ResponseFilesOptions options)
    : options_(std::move(options)), own_(options_.folder) {
  thread_ = std::thread([this] { Run(); });
}

ResponseFiles::~ResponseFiles() { Close(); }

void ResponseFiles::Close() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ResponseFiles::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ResponseFiles::Run() {
  pthread_setname_np(pthread_self(), "larder-kept");
  setpriority(PRIO_PROCESS, 0, kNice);
  if (options_.pin) options_.pin();
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (const std::exception& error) {
      options_.failed(error.what());
    }
    lock.lock();
  }
}

std::string ResponseFiles::PathOf(const char* kind, const std::string& id) const {
  return fmt::format("{}/{}{}{}", options_.folder, kind, id.substr(kResponse.size()), kEnd);
}

void ResponseFiles::Write(std::weak_ptr<const StoredTurn> turn,
                          std::weak_ptr<const std::string> body) {
  Post([this, turn = std::move(turn), body = std::move(body)] {
    const auto of = turn.lock();
    if (of != nullptr) WriteNow(*of, body.lock().get());
  });
}

void ResponseFiles::Hide(std::weak_ptr<const StoredTurn> turn, std::string id) {
  Post([this, turn = std::move(turn), id = std::move(id)] {
    if (const auto of = turn.lock()) WriteNow(*of, nullptr);
    ::unlink(PathOf("resp_", id).c_str());
  });
}

void ResponseFiles::Remove(std::string id) {
  Post([this, id = std::move(id)] { RemoveNow(id); });
}

void ResponseFiles::RemoveNow(const std::string& id) const {
  ::unlink(PathOf("resp_", id).c_str());
  ::unlink(PathOf("turn_", id).c_str());
}

void ResponseFiles::WriteNow(const StoredTurn& turn, const std::string* body) const {
  NewFile file(PathOf(body != nullptr ? "resp_" : "turn_", turn.id), FileReaders::kOwner);
  // Put together as text: a tree of small values is about 16 times larger.
  const auto write = [&](std::string_view text) { file.Write(text.data(), text.size()); };
  write(fmt::format(R"({{"version":1,"tenant":"{}","created_ns":{},"previous":"{}","input":)",
                    TenantText(turn.tenant), turn.created_ns,
                    turn.previous == nullptr ? std::string() : turn.previous->id));
  write(turn.input);
  write(R"(,"output":)");
  write(turn.output);
  if (body != nullptr) {
    write(R"(,"response":)");
    write(*body);
  }
  write("}\n");
  file.Commit();
}

std::vector<KeptTurn> ResponseFiles::Load() const {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(options_.folder.c_str()), &::closedir);
  if (folder == nullptr)
    throw Error("{}: can't read the folder: {}", options_.folder, std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder.get())) names.emplace_back(entry->d_name);
  std::vector<KeptTurn> turns;
  for (const std::string& name : names) {
    const std::string path = options_.folder + "/" + name;
    if (name.ends_with(".json.tmp")) ::unlink(path.c_str());  // left by a process that was killed
    const std::string_view response = IdIn(name, kResponse);
    const std::string_view id = response.empty() ? IdIn(name, kTurn) : response;
    if (id.empty()) continue;
    const std::string whole = std::string(kResponse).append(id);
    // A process was killed while it hid this one.
    if (!response.empty() && ::access(PathOf("turn_", whole).c_str(), F_OK) == 0) {
      ::unlink(path.c_str());
      continue;
    }
    try {
      turns.push_back(Read(path, whole));
    } catch (const Error& error) {
      options_.log(fmt::format("{}; it is ignored, and its file stays", error.what()));
    }
  }
  std::ranges::sort(turns, {}, &KeptTurn::created_ns);
  return turns;
}

}  // namespace larder::serving::history
