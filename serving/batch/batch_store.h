// BatchStore: the folder of `larder serve --batch-dir`: files that clients sent, files of answers,
// and the records of batches. Everything is on the disk before a client hears of it, so it is found
// again after a process was killed. The bytes, files and batches of clients have limits. Used by
// one thread at a time.
//
//   file-ID, file-ID.json      bytes of a file, and what it is; without the second it is no file
//   yet batch_ID.json, batch_ID.job  the record of a batch; what its answers depend on (BatchJob)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/own_folder.h"
#include "serving/admission/api_keys.h"
#include "serving/batch/batch_file.h"

namespace larder::serving::inline batch {

struct BatchQuota {
  uint64_t disk_bytes = uint64_t{8} << 30;  // limit for all files
  // Limit for a tenant's files; a single tenant may use all of disk_bytes.
  uint64_t tenant_bytes = UINT64_MAX;
  uint64_t file_bytes = uint64_t{200} << 20;  // limit for a file that a client sends, as at OpenAI
  size_t files = 10000, tenant_files = 1000;
  size_t uploads = 32, tenant_uploads = 8;                // uploads at the same time
  size_t requests = 50000, line_bytes = size_t{1} << 20;  // limits of a batch
  // Batches that have not ended; what they hold in memory is 24 bytes a request.
  size_t unfinished = 32, tenant_unfinished = 8;
  // Records of batches; beyond this number a tenant's oldest ended one is forgotten.
  size_t batches = 10000, tenant_batches = 1000;
};

struct StoredFile {
  std::string id;
  Tenant tenant = kEverybody;
  std::string name;     // the client's name for it; never a path of ours
  std::string purpose;  // "batch", "batch_output"
  uint64_t bytes = 0;
  int64_t created_ns = 0;  // since 1970

  nlohmann::json ToJson() const;  // as OpenAI's API has it
};

enum class BatchStatus {
  kValidating,
  kFailed,
  kInProgress,
  kFinalizing,
  kCompleted,
  kCancelling,
  kCancelled,
};
const char* BatchStatusName(BatchStatus);

struct BatchRecord {
  std::string id;
  Tenant tenant = kEverybody;
  std::string input, endpoint, window;
  nlohmann::json metadata;  // an object of strings, or null
  int64_t created_ns = 0;   // since 1970
  BatchStatus status = BatchStatus::kValidating;
  std::map<std::string, int64_t> at;  // when it got a state: seconds since 1970, by its name
  size_t total = 0, completed = 0, failed = 0;
  std::string output, errors;                   // ids of the files that get the answers
  bool has_output = false, has_errors = false;  // the client can see the files
  std::vector<BatchProblem> problems;
  // If a process ended while it checked the input: the line that it had come to; else 0.
  size_t ended_at_line = 0;

  bool ended() const {
    return status == BatchStatus::kFailed || status == BatchStatus::kCompleted ||
           status == BatchStatus::kCancelled;
  }
  void Become(BatchStatus);       // and notes the time
  nlohmann::json ToJson() const;  // as OpenAI's API has it
};

class BatchStore {
 public:
  using Log = std::function<void(const std::string&)>;

  // Opens the folder, or makes it, and reads what is in it. log: gets lines about damaged files.
  // Throws Error.
  BatchStore(std::string folder, const BatchQuota& quota, Log log);

  // A file that is being received. Its destructor removes it unless it was finished.
  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    // Throws Refused: a limit; Error: the disk.
    void Write(std::string_view bytes);
    StoredFile Finish(std::string name);  // throws Error

   private:
    friend class BatchStore;
    Upload(BatchStore& store, Tenant tenant);
    BatchStore& store_;
    StoredFile file_;
    Descriptor descriptor_;
    bool finished_ = false;
  };
  // Throws Refused or Error. The store must outlive the result.
  std::shared_ptr<Upload> NewUpload(Tenant);

  // nullptr: there is none of that id, or it is another tenant's.
  const StoredFile* FindFile(std::string_view id, Tenant) const;
  std::vector<const StoredFile*> Files(Tenant) const;  // the newest first
  // Throws Refused: a batch reads it.
  void Remove(const StoredFile& file);
  std::string PathOf(std::string_view id) const { return folder_ + "/" + std::string(id); }

  // A new batch, with ids for its answers. Throws Refused: a limit; Error.
  BatchRecord& AddBatch(BatchRecord);
  void Save(const BatchRecord&);  // throws Error
  BatchRecord* FindBatch(std::string_view id, Tenant);
  BatchRecord& batch(const std::string& id) { return batches_.at(id); }
  std::vector<const BatchRecord*> Batches(Tenant) const;  // the newest first
  std::vector<std::string> Unfinished() const;            // ids, the oldest first
  std::string JobPathOf(const BatchRecord& record) const { return PathOf(record.id) + ".job"; }
  // The line that is being checked, in this file while the check runs. The kernel keeps it when the
  // process ends, so it is written before each line and never forced to the disk.
  std::string CheckPathOf(const BatchRecord& record) const { return PathOf(record.id) + ".check"; }
  // Why a tenant's files may not grow by that many bytes; empty: they may.
  std::string WhyNoRoom(Tenant, uint64_t bytes) const;
  // Tells that answers being written grew, or are gone.
  void Charge(Tenant, uint64_t bytes);
  void Discharge(Tenant, uint64_t bytes);
  // Makes the answers, or the answers that are errors, a file of the client; an empty one is
  // removed. Returns whether there is one. Throws Error.
  bool Publish(const BatchRecord&, const std::string& id, const std::string& name);
  void ForgetJob(const BatchRecord&);  // the batch has ended

  size_t files() const { return files_.size(); }
  uint64_t bytes() const { return bytes_; }
  const BatchQuota& quota() const { return quota_; }
  const Log& log() const { return log_; }

 private:
  void Load();
  void LoadFile(const std::string& id);
  void LoadBatch(const std::string& id);
  void RemoveRests(const std::vector<std::string>& names);
  void ForgetOldBatches(Tenant);
  void SaveFile(const StoredFile&);
  uint64_t BytesOf(Tenant) const;
  size_t CountUnfinished(const Tenant*) const;
  size_t CountFiles(const Tenant*) const;

  const std::string folder_;
  const BatchQuota quota_;
  const Log log_;
  const OwnFolder own_;
  std::map<std::string, StoredFile, std::less<>> files_;     // by id
  std::map<std::string, BatchRecord, std::less<>> batches_;  // by id
  std::map<Tenant, uint64_t> tenant_bytes_;
  uint64_t bytes_ = 0;
  std::map<Tenant, size_t> uploads_;  // files that are being received
};

// The beginning of a file's or a batch's id and 32 hexadecimal digits that nobody can guess.
std::string NewId(std::string_view beginning);
bool IsId(std::string_view beginning, std::string_view text);

}  // namespace larder::serving::batch
