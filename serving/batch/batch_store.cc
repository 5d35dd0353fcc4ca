#include "serving/batch/batch_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/new_file.h"
#include "serving/reply/error_reply.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

constexpr size_t kIdDigits = 32;
constexpr std::string_view kFile = "file-", kBatch = "batch_";
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr std::array kStatuses = {BatchStatus::kValidating, BatchStatus::kFailed,
                                  BatchStatus::kInProgress, BatchStatus::kFinalizing,
                                  BatchStatus::kCompleted,  BatchStatus::kCancelling,
                                  BatchStatus::kCancelled};

int64_t UnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A small file, whole or not at all.
void WriteNew(const std::string& path, const json& value) {
  const std::string text = Dump(value) + "\n";
  NewFile file(path, FileReaders::kOwner);
  file.Write(text.data(), text.size());
  file.Commit();
}

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error("{}: can't open: {}", path, std::strerror(errno));
  try {
    auto value = ParseJsonText<json>(std::string(std::istreambuf_iterator<char>(file), {}));
    if (value.at("version") != 1) throw Error("{}: written by another version of Larder", path);
    return value;
  } catch (...) {
    RethrowOfFile(path, "damaged");
  }
}

json Problems(const std::vector<BatchProblem>& problems) {
  json list = json::array();
  for (const BatchProblem& problem : problems) {
    list.push_back({{"code", "invalid_request"},
                    {"line", problem.line > 0 ? json(problem.line) : json(nullptr)},
                    {"message", problem.what},
                    {"param", nullptr}});
  }
  return list;
}

std::string Megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

}  // namespace

std::string NewId(std::string_view beginning) {
  std::array<unsigned char, kIdDigits / 2> random;
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    throw Error("the system has no random numbers: {}", std::strerror(errno));
  std::string id(beginning);
  for (const unsigned char byte : random) id += fmt::format("{:02x}", byte);
  return id;
}

bool IsId(std::string_view beginning, std::string_view text) {
  return text.size() == beginning.size() + kIdDigits && text.starts_with(beginning) &&
         text.find_first_not_of("0123456789abcdef", beginning.size()) == std::string_view::npos;
}

const char* BatchStatusName(BatchStatus status) {
  switch (status) {
    case BatchStatus::kValidating:
      return "validating";
    case BatchStatus::kFailed:
      return "failed";
    case BatchStatus::kInProgress:
      return "in_progress";
    case BatchStatus::kFinalizing:
      return "finalizing";
    case BatchStatus::kCompleted:
      return "completed";
    case BatchStatus::kCancelling:
      return "cancelling";
    case BatchStatus::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

json StoredFile::ToJson() const {
  return {{"id", id},
          {"object", "file"},
          {"bytes", bytes},
          {"created_at", created_ns / kSecondNs},
          {"expires_at", nullptr},
          {"filename", name},
          {"purpose", purpose},
          {"status", "processed"},
          {"status_details", nullptr}};
}

void BatchRecord::Become(BatchStatus now) {
  status = now;
  at[BatchStatusName(now)] = UnixNs() / kSecondNs;
}

json BatchRecord::ToJson() const {
  const auto when = [&](BatchStatus of) {
    const auto found = at.find(BatchStatusName(of));
    return found == at.end() ? json(nullptr) : json(found->second);
  };
  json errors_of = nullptr;
  if (!problems.empty()) errors_of = {{"object", "list"}, {"data", Problems(problems)}};
  return {{"id", id},
          {"object", "batch"},
          {"endpoint", endpoint},
          {"errors", errors_of},
          {"input_file_id", input},
          {"completion_window", window},
          {"status", BatchStatusName(status)},
          {"output_file_id", has_output ? json(output) : json(nullptr)},
          {"error_file_id", has_errors ? json(errors) : json(nullptr)},
          {"created_at", created_ns / kSecondNs},
          {"in_progress_at", when(BatchStatus::kInProgress)},
          {"expires_at", nullptr},
          {"finalizing_at", when(BatchStatus::kFinalizing)},
          {"completed_at", when(BatchStatus::kCompleted)},
          {"failed_at", when(BatchStatus::kFailed)},
          {"expired_at", nullptr},
          {"cancelling_at", when(BatchStatus::kCancelling)},
          {"cancelled_at", when(BatchStatus::kCancelled)},
          {"request_counts", {{"total", total}, {"completed", completed}, {"failed", failed}}},
          {"metadata", metadata}};
}

BatchStore::BatchStore(std::string folder, const BatchQuota& quota, Log log)
    : folder_(std::move(folder)), quota_(quota), log_(std::move(log)), own_(folder_) {
  Load();
}

void BatchStore::Load() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(folder_.c_str()), &::closedir);
  if (folder == nullptr)
    throw Error("{}: can't read the folder: {}", folder_, std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder.get())) names.emplace_back(entry->d_name);
  bool all_batches = true;
  for (const std::string& name : names) {
    const std::string_view id = std::string_view(name).substr(0, name.rfind('.'));
    if (!name.ends_with(".json")) continue;
    try {
      if (IsId(kFile, id)) LoadFile(std::string(id));
      if (IsId(kBatch, id)) LoadBatch(std::string(id));
    } catch (const std::exception& error) {
      all_batches = all_batches && !IsId(kBatch, id);
      log_(fmt::format("{}; it is ignored, and its file stays", error.what()));
    }
  }
  // Which answers are those of a batch that can't be read, nobody knows.
  if (all_batches) RemoveRests(names);
}

void BatchStore::LoadFile(const std::string& id) {
  const json value = ReadJson(PathOf(id) + ".json");
  const StoredFile file{.id = id,
                        .tenant = TenantOfText(value.at("tenant")),
                        .name = value.at("name").get<std::string>(),
                        .purpose = value.at("purpose").get<std::string>(),
                        .bytes = value.at("bytes").get<uint64_t>(),
                        .created_ns = value.at("created_ns").get<int64_t>()};
  struct stat about {};
  if (::stat(PathOf(id).c_str(), &about) != 0 || !S_ISREG(about.st_mode) ||
      static_cast<uint64_t>(about.st_size) != file.bytes)
    throw Error("{}: expected a file of {} bytes", PathOf(id), file.bytes);
  files_[id] = file;
  Charge(file.tenant, file.bytes);
}

void BatchStore::LoadBatch(const std::string& id) {
  const json value = ReadJson(PathOf(id) + ".json");
  BatchRecord record;
  record.id = id;
  record.tenant = TenantOfText(value.at("tenant"));
  for (const auto& [key, text] : {std::pair{"input", &record.input},
                                  {"endpoint", &record.endpoint},
                                  {"window", &record.window},
                                  {"output", &record.output},
                                  {"errors", &record.errors}})
    *text = value.at(key).get<std::string>();
  for (const std::string& of : {record.input, record.output, record.errors}) {
    if (!IsId(kFile, of)) throw Error("{}.json: damaged: \"{}\" is no file's id", PathOf(id), of);
  }
  record.metadata = value.at("metadata");
  record.created_ns = value.at("created_ns").get<int64_t>();
  const auto* status = std::find_if(kStatuses.begin(), kStatuses.end(), [&](BatchStatus one) {
    return value.at("status") == BatchStatusName(one);
  });
  if (status == kStatuses.end()) throw Error("{}.json: damaged: its status", PathOf(id));
  record.status = *status;
  record.at = value.at("at").get<std::map<std::string, int64_t>>();
  record.total = value.at("total").get<size_t>();
  record.completed = value.at("completed").get<size_t>();
  record.failed = value.at("failed").get<size_t>();
  record.ended_at_line = value.value("ended_at_line", size_t{0});
  record.has_output = value.at("has_output").get<bool>();
  record.has_errors = value.at("has_errors").get<bool>();
  for (const json& problem : value.at("problems"))
    record.problems.push_back(
        {problem.at("line").get<size_t>(), problem.at("what").get<std::string>()});
  batches_[id] = std::move(record);
}

// Removes what a process left that was killed: files that are not whole, and those of jobs that
// have ended.
void BatchStore::RemoveRests(const std::vector<std::string>& names) {
  std::set<std::string, std::less<>> used;
  for (const auto& [id, record] : batches_) {
    if (record.ended()) continue;
    used.insert(record.output);
    used.insert(record.errors);
    used.insert(id + ".job");
    used.insert(id + ".check");
  }
  const std::set<std::string, std::less<>> there(names.begin(), names.end());
  for (const std::string& name : names) {
    const bool rest = IsId(kFile, name) && !used.contains(name) && !there.contains(name + ".json");
    const bool job = (name.ends_with(".job") || name.ends_with(".check")) && !used.contains(name);
    const std::string_view id = std::string_view(name).substr(0, name.find('.'));
    const bool ours = IsId(kFile, id) || IsId(kBatch, id);
    if (ours && (rest || job || name.ends_with(".tmp"))) ::unlink(PathOf(name).c_str());
  }
}

uint64_t BatchStore::BytesOf(Tenant tenant) const {
  const auto found = tenant_bytes_.find(tenant);
  return found == tenant_bytes_.end() ? 0 : found->second;
}

void BatchStore::Charge(Tenant tenant, uint64_t bytes) {
  bytes_ += bytes;
  tenant_bytes_[tenant] += bytes;
}

void BatchStore::Discharge(Tenant tenant, uint64_t bytes) {
  bytes_ -= bytes;
  if ((tenant_bytes_[tenant] -= bytes) == 0) tenant_bytes_.erase(tenant);
}

std::string BatchStore::WhyNoRoom(Tenant tenant, uint64_t bytes) const {
  const uint64_t own = BytesOf(tenant);
  if (own + bytes > std::min(quota_.tenant_bytes, quota_.disk_bytes))
    return fmt::format("your files have {} of the {} that they may have; delete some",
                       Megabytes(own), Megabytes(std::min(quota_.tenant_bytes, quota_.disk_bytes)));
  if (bytes_ + bytes > quota_.disk_bytes)
    return fmt::format("all files here have {} of the {} that they may have; delete some",
                       Megabytes(bytes_), Megabytes(quota_.disk_bytes));
  return "";
}

size_t BatchStore::CountFiles(const Tenant* tenant) const {
  return static_cast<size_t>(std::count_if(files_.begin(), files_.end(), [&](const auto& one) {
    return tenant == nullptr || one.second.tenant == *tenant;
  }));
}

size_t BatchStore::CountUnfinished(const Tenant* tenant) const {
  return static_cast<size_t>(std::count_if(batches_.begin(), batches_.end(), [&](const auto& one) {
    return !one.second.ended() && (tenant == nullptr || one.second.tenant == *tenant);
  }));
}

BatchStore::Upload::Upload(BatchStore& store, Tenant tenant) : store_(store) {
  file_ = {
      .id = NewId(kFile), .tenant = tenant, .name = {}, .purpose = "batch", .created_ns = UnixNs()};
  const std::string path = store.PathOf(file_.id);
  descriptor_ =
      Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!descriptor_) throw Error("{}: can't create: {}", path, std::strerror(errno));
  ++store.uploads_[tenant];
}

BatchStore::Upload::~Upload() {
  if (--store_.uploads_[file_.tenant] == 0) store_.uploads_.erase(file_.tenant);
  if (finished_) return;
  ::unlink(store_.PathOf(file_.id).c_str());
  store_.Discharge(file_.tenant, file_.bytes);
}

void BatchStore::Upload::Write(std::string_view bytes) {
  if (file_.bytes + bytes.size() > store_.quota_.file_bytes)
    throw Refused(413, "the file is larger than {}: split it", Megabytes(store_.quota_.file_bytes))
        .On("file");
  if (const std::string why = store_.WhyNoRoom(file_.tenant, bytes.size()); !why.empty())
    throw Refused(413, "{}", why).On("file");
  WriteAll(descriptor_, bytes, store_.PathOf(file_.id));
  file_.bytes += bytes.size();
  store_.Charge(file_.tenant, bytes.size());
}

StoredFile BatchStore::Upload::Finish(std::string name) {
  const std::string path = store_.PathOf(file_.id);
  if (::fdatasync(descriptor_.get()) != 0)
    throw Error("{}: can't write: {}", path, std::strerror(errno));
  file_.name = std::move(name);
  store_.SaveFile(file_);
  store_.files_[file_.id] = file_;
  finished_ = true;
  return file_;
}

std::shared_ptr<BatchStore::Upload> BatchStore::NewUpload(Tenant tenant) {
  size_t all = 0, own = 0;
  for (const auto& [of, count] : uploads_) {
    all += count;
    if (of == tenant) own = count;
  }
  // Without keys all are one tenant, and nobody's share.
  if (all >= quota_.uploads || (tenant != kEverybody && own >= quota_.tenant_uploads))
    throw Refused(429, "{} files are being received, {} of them yours; try again later", all, own);
  for (const Tenant* of :
       {static_cast<const Tenant*>(&tenant), static_cast<const Tenant*>(nullptr)}) {
    const size_t most = of != nullptr ? quota_.tenant_files : quota_.files;
    if (CountFiles(of) + 2 * CountUnfinished(of) >= most)
      throw Refused(413, "{} {} files, those for answers to come included; delete some",
                    of != nullptr ? "you have" : "all clients together have", most);
  }
  return std::shared_ptr<Upload>(new Upload(*this, tenant));
}

void BatchStore::SaveFile(const StoredFile& file) {
  WriteNew(PathOf(file.id) + ".json", {{"version", 1},
                                       {"tenant", TenantText(file.tenant)},
                                       {"name", file.name},
                                       {"purpose", file.purpose},
                                       {"bytes", file.bytes},
                                       {"created_ns", file.created_ns}});
}

const StoredFile* BatchStore::FindFile(std::string_view id, Tenant tenant) const {
  const auto found = files_.find(id);
  return found == files_.end() || found->second.tenant != tenant ? nullptr : &found->second;
}

std::vector<const StoredFile*> BatchStore::Files(Tenant tenant) const {
  std::vector<const StoredFile*> list;
  for (const auto& [id, file] : files_) {
    if (file.tenant == tenant) list.push_back(&file);
  }
  std::ranges::sort(list, std::greater<>(), [](const StoredFile* of) { return of->created_ns; });
  return list;
}

void BatchStore::Remove(const StoredFile& file) {
  for (const auto& [id, record] : batches_) {
    if (!record.ended() && record.input == file.id)
      throw Refused(409, "{} is the input of {}, which is {}; cancel that first", file.id, id,
                    BatchStatusName(record.status));
  }
  const std::string path = PathOf(file.id);
  // The name goes first: without it the bytes are a rest.
  if (::unlink((path + ".json").c_str()) != 0 && errno != ENOENT)
    throw Error("{}.json: can't remove it: {}", path, std::strerror(errno));
  ::unlink(path.c_str());
  Discharge(file.tenant, file.bytes);
  files_.erase(std::string(file.id));
}

BatchRecord& BatchStore::AddBatch(BatchRecord record) {
  for (const Tenant* of :
       {static_cast<const Tenant*>(&record.tenant), static_cast<const Tenant*>(nullptr)}) {
    const char* whose = of != nullptr ? "you have" : "all clients together have";
    const size_t most = of != nullptr ? quota_.tenant_unfinished : quota_.unfinished;
    if (CountUnfinished(of) >= most)
      throw Refused(429, "{} {} batches that have not ended; wait for one, or cancel one", whose,
                    most);
    const size_t most_files = of != nullptr ? quota_.tenant_files : quota_.files;
    if (CountFiles(of) + 2 * CountUnfinished(of) + 2 > most_files)
      throw Refused(413, "{} {} files, those for answers to come included; delete some", whose,
                    most_files);
  }
  ForgetOldBatches(record.tenant);
  record.id = NewId(kBatch);
  record.output = NewId(kFile);
  record.errors = NewId(kFile);
  record.created_ns = UnixNs();
  record.Become(BatchStatus::kValidating);
  Save(record);
  return batches_[record.id] = std::move(record);
}

// Makes room for one more record.
void BatchStore::ForgetOldBatches(Tenant tenant) {
  const auto forget = [&](const Tenant* of, size_t most) {
    std::vector<const BatchRecord*> list;
    for (const auto& [id, record] : batches_) {
      if (of == nullptr || record.tenant == *of) list.push_back(&record);
    }
    if (list.size() < most) return;
    std::erase_if(list, [](const BatchRecord* one) { return !one->ended(); });
    const auto oldest = std::ranges::min_element(list, {}, &BatchRecord::created_ns);
    if (oldest == list.end()) return;
    const std::string id = (*oldest)->id;
    ::unlink((PathOf(id) + ".json").c_str());
    batches_.erase(id);
  };
  forget(&tenant, quota_.tenant_batches);
  forget(nullptr, quota_.batches);
}

void BatchStore::Save(const BatchRecord& record) {
  json problems = json::array();
  for (const BatchProblem& problem : record.problems)
    problems.push_back({{"line", problem.line}, {"what", problem.what}});
  WriteNew(PathOf(record.id) + ".json", {{"version", 1},
                                         {"tenant", TenantText(record.tenant)},
                                         {"input", record.input},
                                         {"endpoint", record.endpoint},
                                         {"window", record.window},
                                         {"metadata", record.metadata},
                                         {"created_ns", record.created_ns},
                                         {"status", BatchStatusName(record.status)},
                                         {"at", record.at},
                                         {"total", record.total},
                                         {"completed", record.completed},
                                         {"failed", record.failed},
                                         {"output", record.output},
                                         {"errors", record.errors},
                                         {"has_output", record.has_output},
                                         {"has_errors", record.has_errors},
                                         {"ended_at_line", record.ended_at_line},
                                         {"problems", problems}});
}

BatchRecord* BatchStore::FindBatch(std::string_view id, Tenant tenant) {
  const auto found = batches_.find(id);
  return found == batches_.end() || found->second.tenant != tenant ? nullptr : &found->second;
}

std::vector<const BatchRecord*> BatchStore::Batches(Tenant tenant) const {
  std::vector<const BatchRecord*> list;
  for (const auto& [id, record] : batches_) {
    if (record.tenant == tenant) list.push_back(&record);
  }
  std::ranges::sort(list, std::greater<>(), &BatchRecord::created_ns);
  return list;
}

std::vector<std::string> BatchStore::Unfinished() const {
  std::vector<const BatchRecord*> list;
  for (const auto& [id, record] : batches_) {
    if (!record.ended()) list.push_back(&record);
  }
  std::ranges::sort(list, {}, &BatchRecord::created_ns);
  std::vector<std::string> ids;
  ids.reserve(list.size());
  for (const BatchRecord* record : list) ids.push_back(record->id);
  return ids;
}

bool BatchStore::Publish(const BatchRecord& record, const std::string& id,
                         const std::string& name) {
  const std::string path = PathOf(id);
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0 || about.st_size == 0) {
    ::unlink(path.c_str());
    return false;
  }
  const StoredFile file{.id = id,
                        .tenant = record.tenant,
                        .name = name,
                        .purpose = "batch_output",
                        .bytes = static_cast<uint64_t>(about.st_size),
                        .created_ns = UnixNs()};
  SaveFile(file);
  if (files_.contains(id)) Discharge(file.tenant, files_[id].bytes);  // published before a kill
  files_[id] = file;
  Charge(file.tenant, file.bytes);
  return true;
}

void BatchStore::ForgetJob(const BatchRecord& record) {
  ::unlink(JobPathOf(record).c_str());
  ::unlink(CheckPathOf(record).c_str());
}

}  // namespace larder::serving::batch
