// Batches at work: what is wrong with their files, and that what was killed goes on to the same
// answers.
#include "serving/batch/batch_jobs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "serving/batch/batch_store_testing.h"

namespace larder::serving::inline batch {
namespace {

using Lines = std::vector<std::string>;

constexpr Tenant kOwner{5};

class BatchJobsTest : public testing::Test {
 protected:
  BatchRecord& Of(TestBatches& here, const std::string& id, Tenant tenant = kEverybody) {
    return *here.store.FindBatch(id, tenant);
  }
  std::string status(TestBatches& here, const std::string& id) {
    return BatchStatusName(Of(here, id).status);
  }
  std::string Folder() const { return folder_ / "batches"; }
  TemporaryFolder folder_;
};

std::string Requests(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += TestRequest(fmt::format("r{}", i));
  return text;
}

TEST_F(BatchJobsTest, SaysByLineWhatIsWrongWithAFile) {
  TestBatches here(Folder(), {.requests = 4, .line_bytes = 200});
  here.Begin();
  const auto problems = [&](const std::string& text) {
    const BatchRecord& record = Of(here, here.Create(here.Send(text).id));
    EXPECT_EQ(record.status, BatchStatus::kFailed);
    Lines list;
    for (const BatchProblem& problem : record.problems)
      list.push_back(fmt::format("{}: {}", problem.line, problem.what));
    return list;
  };
  const std::string good = TestRequest("a");
  EXPECT_EQ(problems(""), Lines{"0: the file has no requests"});
  EXPECT_EQ(problems(good + good), Lines{"0: request 2 has the custom_id of an earlier one"});
  EXPECT_EQ(problems(good + std::string(300, '\n') + std::string(300, ' ') + "\n"),
            Lines{"302: longer than 200 bytes"});
  EXPECT_EQ(problems(Requests(5)), Lines{"5: more than 4 requests; split the file"});
  EXPECT_EQ(problems(std::string(1000, '\0')), Lines{"1: longer than 200 bytes"});
  const std::string chat =
      R"({"custom_id":"c","url":"/v1/chat/completions","body":{"messages":[]}})";
  const Lines several = problems(good + chat + "\n{\n" +
                                 R"({"custom_id":"d","url":"/v1/completions","body":{"n":-1}})");
  ASSERT_EQ(several.size(), 3u);
  EXPECT_EQ(several[0], "2: its url is not that of the batch: expected /v1/completions");
  EXPECT_TRUE(several[1].starts_with("3: ")) << several[1];
  EXPECT_TRUE(several[2].starts_with("4: ") && several[2].find("n") != std::string::npos);
  EXPECT_EQ(here.Next(10).size(), 0u);
  EXPECT_EQ(here.jobs->counts().jobs, 0u);
}

// A batch's record holds its problems, and no limit of disk or memory counts their text: so the
// text is cut.
TEST_F(BatchJobsTest, WhatIsWrongWithALineIsCut) {
  TestBatches here(Folder());
  here.Begin();
  std::string url;
  while (url.size() < 100000) url += "\u20ac";
  const BatchRecord& record =
      Of(here, here.Create(here.Send(R"({"custom_id":"a","url":")" + url + R"("})").id));
  ASSERT_EQ(record.problems.size(), 1u);
  EXPECT_LT(record.problems[0].what.size(), 600u);
  EXPECT_EQ(nlohmann::json(record.problems[0].what).dump().find("\ufffd"), std::string::npos);
}

TEST_F(BatchJobsTest, AnswersAndErrorsAreFilesOfTheirOwn) {
  TestBatches here(Folder());
  here.Begin();
  const std::string input = here.Send(Requests(3) + TestRequest("bad"), kOwner).id;
  const std::string id = here.Create(input, kOwner);
  EXPECT_EQ(here.jobs->counts().requests_left, 4u);
  EXPECT_THROW(here.store.Remove(*here.store.FindFile(input, kOwner)), Refused)
      << "it is being read";
  EXPECT_EQ(here.store.Files(kOwner).size(), 1u) << "answers are no file before all are there";
  EXPECT_EQ(here.Run(), 4u);
  const BatchRecord& record = Of(here, id, kOwner);
  EXPECT_EQ(record.status, BatchStatus::kCompleted);
  EXPECT_EQ(record.completed, 3u);
  EXPECT_EQ(record.failed, 1u);
  EXPECT_EQ(here.Lines(record.output).size(), 3u);
  EXPECT_EQ(here.Lines(record.errors).size(), 1u);
  EXPECT_TRUE(here.store.FindFile(record.output, kOwner));
  EXPECT_FALSE(here.store.FindFile(record.output, kEverybody));
  EXPECT_FALSE(std::filesystem::exists(here.store.JobPathOf(record)));
  here.store.Remove(*here.store.FindFile(input, kOwner));
  // All requests have answers, so there is no file of errors.
  const std::string all_good = here.Create(here.Send(Requests(2)).id);
  here.Run();
  EXPECT_TRUE(Of(here, all_good).has_output);
  EXPECT_FALSE(Of(here, all_good).has_errors);
  uint64_t bytes = 0;
  for (const Tenant tenant : {kOwner, kEverybody})
    for (const StoredFile* file : here.store.Files(tenant)) bytes += file->bytes;
  EXPECT_EQ(here.store.bytes(), bytes) << "what is charged is what is there";
}

// A process is killed after each number of answers, in the middle of a line. The next one computes
// what is missing, to the answers of a job that nobody disturbed.
TEST_F(BatchJobsTest, WhatWasKilledGoesOnToTheSameAnswers) {
  const std::string text = Requests(6) + TestRequest("bad") + TestRequest("worse");
  std::string id;
  {
    TestBatches here(Folder());
    here.Begin();
    id = here.Create(here.Send(text).id);
  }
  const auto copy = [&](const std::string& to) {
    std::filesystem::copy(Folder(), folder_ / to, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(folder_ / to, std::filesystem::perms::owner_all);
    return folder_ / to;
  };
  Lines expected;
  const auto all_lines = [&](TestBatches& here) {
    const BatchRecord& record = Of(here, id);
    EXPECT_EQ(record.status, BatchStatus::kCompleted);
    EXPECT_EQ(record.completed, 7u);
    EXPECT_EQ(record.failed, 1u);
    Lines lines = here.Lines(record.output);
    for (const std::string& line : here.Lines(record.errors)) lines.push_back(line);
    return lines;
  };
  {
    TestBatches whole(copy("whole"));
    whole.Begin();
    EXPECT_EQ(whole.Run(), 8u);
    expected = all_lines(whole);
  }
  for (size_t answered = 0; answered <= 8; ++answered) {
    const std::string folder = copy(fmt::format("killed{}", answered));
    std::string output;
    {
      TestBatches here(folder);
      here.Begin();
      EXPECT_EQ(here.Run(answered), answered);
      here.Next(2);  // begun, and lost
      output = here.store.PathOf(Of(here, id).output);
    }
    if (answered < 8) std::ofstream(output, std::ios::app) << R"({"custom_id": "r)";
    TestBatches here(folder);
    here.Begin();
    EXPECT_EQ(here.Run(), 8 - answered) << "what has an answer is not computed again";
    EXPECT_EQ(all_lines(here), expected) << "after " << answered;
  }
}

// A line whose check ends the process would end every process that is started after it, too.
TEST_F(BatchJobsTest, AnInputThatEndedTheServerTwiceIsNotTriedAgain) {
  std::string id;
  {
    TestBatches here(Folder());
    here.Begin();
    id = here.Create(here.Send(Requests(3)).id);
  }
  const auto copy = [](const std::string& from, const std::string& to) {
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(to, std::filesystem::perms::owner_all);
    return to;
  };
  // The folder as a process leaves it that ends in the middle of the check.
  const auto killed = [&](const std::string& folder, const std::string& to, uint64_t line) {
    TestBatches here(folder);
    here.Begin(/*checks=*/false);
    here.jobs->Step();
    std::ofstream(here.store.CheckPathOf(Of(here, id)), std::ios::binary)
        .write(reinterpret_cast<const char*>(&line), sizeof line);
    return copy(folder, to);
  };
  const std::string stopped = copy(Folder(), folder_ / "stopped");
  for (int i = 0; i < 3; ++i) {  // in an orderly way, in the middle of the check
    TestBatches here(stopped);
    here.Begin(/*checks=*/false);
    here.jobs->Step();
  }
  const std::string once = killed(stopped, folder_ / "once", 2);
  const std::string elsewhere = killed(once, folder_ / "elsewhere", 3);
  const std::string twice = killed(killed(elsewhere, folder_ / "again", 2), folder_ / "twice", 2);
  for (const std::string& folder : {once, elsewhere}) {
    TestBatches here(copy(folder, folder + "_after"));
    here.Begin();
    EXPECT_EQ(status(here, id), "in_progress");
    EXPECT_EQ(here.Run(), 3u);
    EXPECT_EQ(status(here, id), "completed");
    EXPECT_EQ(Of(here, id).ended_at_line, 0u);
  }
  TestBatches here(twice);
  here.Begin();
  EXPECT_EQ(status(here, id), "failed");
  ASSERT_EQ(Of(here, id).problems.size(), 1u);
  EXPECT_EQ(Of(here, id).problems[0].line, 2u);
  EXPECT_NE(Of(here, id).problems[0].what.find("ended twice"), std::string::npos);
  ASSERT_EQ(here.log.size(), 1u);
  EXPECT_NE(here.log[0].find(id + ": failed: the server ended twice while it checked line 2"),
            std::string::npos)
      << here.log[0];
  const std::string next = here.Create(here.Send(Requests(1)).id);
  EXPECT_EQ(here.Run(), 1u) << "others go on";
  EXPECT_EQ(status(here, next), "completed");
}

TEST_F(BatchJobsTest, AnotherModelDoesNotGoOnWithABatch) {
  std::string id;
  {
    TestBatches here(Folder());
    here.Begin();
    id = here.Create(here.Send(Requests(3)).id);
    here.Run(2);
  }
  TestBatches here(Folder());
  here.defaults.fingerprint = 99;
  here.Begin();
  const BatchRecord& record = Of(here, id);
  EXPECT_EQ(record.status, BatchStatus::kFailed);
  ASSERT_EQ(record.problems.size(), 1u);
  EXPECT_NE(record.problems[0].what.find("the model is another one"), std::string::npos);
  EXPECT_EQ(here.Lines(record.output).size(), 2u) << "what it has is the client's";
  EXPECT_TRUE(here.store.FindFile(record.output, kEverybody));
}

// Requests that another model would refuse are no reason to lose the answers of the first one.
TEST_F(BatchJobsTest, AnswersOfABatchWhoseRequestsAreGoodNoMoreAreKept) {
  std::string id;
  {
    TestBatches here(Folder());
    here.Begin();
    std::string text = Requests(3);
    text.replace(text.find("}}"), 1, R"(,"logit_bias":{"20":1}})");
    id = here.Create(here.Send(text).id);
    here.Run(2);
    std::ofstream(here.store.PathOf(Of(here, id).output), std::ios::app) << R"({"custom_id": "r)";
  }
  {
    TestBatches here(Folder());
    here.defaults.vocab = 10;
    here.Begin();
    const BatchRecord& record = Of(here, id);
    EXPECT_EQ(record.status, BatchStatus::kFailed);
    EXPECT_NE(record.problems[0].what.find("logit_bias"), std::string::npos);
  }
  TestBatches here(Folder());
  const BatchRecord& record = Of(here, id);
  EXPECT_TRUE(record.has_output);
  EXPECT_EQ(here.Lines(record.output).size(), 2u);
}

TEST_F(BatchJobsTest, ACancelledBatchEndsWithWhatItHas) {
  TestBatches here(Folder());
  here.Begin();
  const std::string id = here.Create(here.Send(Requests(4)).id);
  here.Run(1);
  const auto begun = here.Next(2);
  ASSERT_EQ(begun.size(), 2u);
  here.jobs->Cancel(Of(here, id));
  EXPECT_EQ(status(here, id), "cancelling");
  EXPECT_EQ(here.Next(1).size(), 0u);
  here.Answer(begun[0]);
  EXPECT_EQ(status(here, id), "cancelling");
  here.jobs->Drop(begun[1].ticket);
  EXPECT_EQ(status(here, id), "cancelled");
  EXPECT_EQ(here.Lines(Of(here, id).output).size(), 2u);
  EXPECT_THROW(here.jobs->Cancel(Of(here, id)), Refused);
  // One that is cancelled when its process is killed is cancelled when the next one begins.
  const std::string other = here.Create(here.Send(Requests(2)).id);
  const auto lost = here.Next(1);
  here.jobs->Cancel(Of(here, other));
  here.jobs = nullptr;
  here.Begin();
  EXPECT_EQ(status(here, other), "cancelled");
  EXPECT_FALSE(Of(here, other).has_output);
}

TEST_F(BatchJobsTest, RequestsThatTheServerCouldNotTakeComeAgain) {
  TestBatches here(Folder());
  here.Begin();
  const std::string id = here.Create(here.Send(Requests(2)).id);
  const auto begun = here.Next(2);
  here.Answer(begun[0], 503);
  here.Answer(begun[1], 429);
  EXPECT_EQ(Of(here, id).completed, 0u);
  EXPECT_TRUE(here.jobs->has_requests());
  EXPECT_EQ(here.Run(), 2u);
  EXPECT_EQ(status(here, id), "completed");
}

TEST_F(BatchJobsTest, BatchesTakeTurnsAndThoseOfAKeyThatIsGoneWait) {
  TestBatches here(Folder());
  here.Begin();
  const std::string one = here.Create(here.Send(Requests(20), Tenant{1}).id, Tenant{1});
  const std::string two = here.Create(here.Send(Requests(3), Tenant{2}).id, Tenant{2});
  const auto begun = here.Next(6);
  ASSERT_EQ(begun.size(), 6u);
  EXPECT_EQ(std::ranges::count_if(begun, [](const auto& of) { return of.tenant == Tenant{1}; }), 3);
  here.unknown = Tenant{1};
  EXPECT_EQ(here.Next(6).size(), 0u);
  here.unknown = Tenant{9};
  EXPECT_EQ(here.Next(6).size(), 6u);
}

TEST_F(BatchJobsTest, WithoutRoomOnTheDiskABatchWaitsUntilThereIs) {
  const std::string text = Requests(10);
  TestBatches here(Folder(), {.disk_bytes = text.size() + 5600});
  here.Begin();
  const StoredFile other = here.Send(std::string(5000, 'x'));
  const std::string id = here.Create(here.Send(text).id);
  const size_t answered = here.Run();
  EXPECT_GT(answered, 0u);
  EXPECT_LT(answered, 10u);
  EXPECT_EQ(status(here, id), "in_progress");
  EXPECT_EQ(here.log.size(), 1u) << "said once";
  here.store.Remove(*here.store.FindFile(other.id, kEverybody));
  EXPECT_EQ(here.Run(), 10 - answered);
  EXPECT_EQ(status(here, id), "completed");
}

// The disk refuses to write (a folder is where a file should be): the batch waits, and answers that
// come meanwhile are computed again.
TEST_F(BatchJobsTest, TheDisksErrorsAreNotTheBatchs) {
  TestBatches here(Folder());
  here.Begin();
  const std::string id = here.Create(here.Send(Requests(2)).id);
  const auto begun = here.Next(2);
  here.Answer(begun[0]);
  const std::string in_the_way = here.store.PathOf(id) + ".json.tmp";
  std::filesystem::create_directory(in_the_way);
  here.Answer(begun[1]);
  EXPECT_FALSE(Of(here, id).ended());
  EXPECT_EQ(here.log.size(), 1u);
  EXPECT_FALSE(here.jobs->has_requests());
  std::filesystem::remove(in_the_way);
  here.jobs = nullptr;  // or 30 seconds
  here.Begin();
  EXPECT_EQ(status(here, id), "completed") << "both answers had been written";
  EXPECT_EQ(here.Lines(Of(here, id).output).size(), 2u);
}

// The same with the last word about a batch: what is not written has not ended, or it might be
// forgotten, or its input be deleted, while it is still to be tried again.
TEST_F(BatchJobsTest, ABatchHasNotEndedBeforeTheDiskSaysSo) {
  TestBatches here(Folder());
  here.Begin();
  const std::string id = here.Create(here.Send(Requests(2)).id);
  here.Run(1);
  const auto begun = here.Next(1);
  here.jobs->Cancel(Of(here, id));
  const std::string in_the_way = here.store.PathOf(id) + ".json.tmp";
  std::filesystem::create_directory(in_the_way);
  here.jobs->Drop(begun.at(0).ticket);
  EXPECT_EQ(status(here, id), "cancelling");
  const StoredFile* input = here.store.FindFile(Of(here, id).input, kEverybody);
  EXPECT_THROW(here.store.Remove(*input), Refused);
  std::filesystem::remove(in_the_way);
  here.jobs = nullptr;
  here.Begin();
  EXPECT_EQ(status(here, id), "cancelled");
  EXPECT_TRUE(Of(here, id).has_output);
  here.store.Remove(*input);
}

}  // namespace
}  // namespace larder::serving::batch
