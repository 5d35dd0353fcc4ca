// Test support: runs threads that are written against sync/wait.h and sync/epoch_flag.h in every
// order that an x86 processor and the futex permit, and finds an order in which a thread waits for
// ever. Included by tests only.
//
// The threads are ordinary functions over ModelMachine. Its words hold no value: each operation
// asks the search for its result. A thread's next operation depends only on the results of the
// operations before it. So a thread is replayed from its start with the results so far, until it
// asks for one that is not known; that operation is its next step. A state of the search consists
// of each thread's results, the memory, the store buffers and the set of sleeping threads; every
// state is visited once.
//
// The processor is x86-TSO (Owens, Sarkar, Sewell 2009): each thread's plain stores wait in a
// first-in first-out buffer that only it reads, and reach memory at any later time; what is
// compiled to a locked instruction (read-modify-write, seq_cst store) and system calls wait until
// the buffer is empty. FUTEX_WAIT compares and sleeps in one step, as futex(2) says, and may return
// for no reason.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sync/wait.h"

namespace larder::sync {

// What is made weaker than in production, to check that the search finds the fault.
enum class Weakness { kNone, kBufferedStore, kSleepWithoutComparing };

struct ModelOp {
  enum Kind { kLoad, kStore, kSwap, kAdd, kPause, kSleep, kWake, kDone, kWrong } kind = kDone;
  size_t word = 0;
  uint32_t value = 0;
};

class ModelReplay {
 public:
  // The operation that `thread` does after the operations that gave `results`.
  static ModelOp Next(const std::function<void()>& thread, const std::vector<uint32_t>& results) {
    ModelReplay replay{&results, 0, {}};
    current_ = &replay;
    try {
      thread();
    } catch (const Unknown&) {
    }
    return replay.next_;
  }
  static uint32_t Ask(const ModelOp& op) {
    ModelReplay& now = *current_;
    if (now.done_ < now.results_->size()) return (*now.results_)[now.done_++];
    now.next_ = op;
    throw Unknown{};
  }

 private:
  struct Unknown {};
  ModelReplay(const std::vector<uint32_t>* results, size_t done, ModelOp next)
      : results_(results), done_(done), next_(next) {}
  static inline ModelReplay* current_ = nullptr;
  const std::vector<uint32_t>* results_;
  size_t done_;
  ModelOp next_;  // kDone: the thread has ended
};

// In place of std::atomic<uint32_t>; starts as 0. Words are numbered as they are made; see
// ModelSearch.
template <Weakness kWeakness>
class ModelWord {
 public:
  explicit ModelWord(uint32_t = 0) : number_(count++) {}
  uint32_t load(std::memory_order) const { return ModelReplay::Ask({ModelOp::kLoad, number_, 0}); }
  void store(uint32_t value, std::memory_order order) {
    const bool locked = order == std::memory_order_seq_cst && kWeakness != Weakness::kBufferedStore;
    ModelReplay::Ask({locked ? ModelOp::kSwap : ModelOp::kStore, number_, value});
  }
  uint32_t exchange(uint32_t value, std::memory_order) {
    return ModelReplay::Ask({ModelOp::kSwap, number_, value});
  }
  uint32_t fetch_add(uint32_t value, std::memory_order) {
    return ModelReplay::Ask({ModelOp::kAdd, number_, value});
  }
  uint32_t fetch_sub(uint32_t value, std::memory_order order) {
    return fetch_add(0u - value, order);
  }
  size_t number() const { return number_; }

  static inline size_t count = 0;

 private:
  const size_t number_;
};

template <Weakness kWeakness = Weakness::kNone>
struct ModelMachine {
  using Word = ModelWord<kWeakness>;
  static constexpr uint32_t kEagerPolls = 1;  // further polls would add states, but no new order
  static void Pause() { ModelReplay::Ask({ModelOp::kPause, 0, 0}); }
  static void Sleep(const Word& word, uint32_t seen) {
    const bool compare = kWeakness != Weakness::kSleepWithoutComparing;
    ModelReplay::Ask(
        {ModelOp::kSleep, compare ? word.number() : word.number() + kNotCompared, seen});
  }
  static void WakeAll(const Word& word) { ModelReplay::Ask({ModelOp::kWake, word.number(), 0}); }
  static constexpr size_t kNotCompared = 1000;
};

// Called in a thread: the search reports a state in which `holds` is false.
inline void ModelRequire(bool holds) {
  if (!holds) ModelReplay::Ask({ModelOp::kWrong, 0, 0});
}

struct ModelThread {
  std::function<void()> run;
  // How it waits. A spinning thread is not followed while its loads give the same values again and
  // again.
  WaitPolicy::Mode mode;
};

struct ModelResult {
  size_t states = 0, ends = 0;
  // The steps that led to a thread that waits for ever, or to a ModelRequire that is false. Empty
  // if neither exists.
  std::string stuck;
};

// All orders of the threads' operations on `words` words, numbered from 0 (zero ModelWord::count
// before making them), each sleep ending up to `spurious` times for no reason.
class ModelSearch {
 public:
  ModelSearch(std::vector<ModelThread> threads, size_t words, uint32_t spurious = 0)
      : threads_(std::move(threads)), words_(words), spurious_(spurious) {}
  ModelResult Run();

 private:
  struct One {
    size_t log = 0;  // into logs_
    bool asleep = false;
    uint32_t spurious = 0;
    std::vector<std::pair<size_t, uint32_t>> buffer;  // stores on their way, the oldest first
  };
  struct State {
    std::vector<One> threads;
    std::vector<uint32_t> memory;
    std::string Key() const;
  };
  struct Log {
    size_t before = 0, thread = 0;
    std::vector<uint32_t> results;
    ModelOp next;
  };
  struct Step {
    State state;
    size_t before, thread;
    const char* what;
    ModelOp op;
  };

  size_t LogOf(size_t before, size_t thread, const std::vector<uint32_t>& results);
  size_t After(size_t log, uint32_t result);
  uint32_t Seen(const State& state, const One& one, size_t word) const;
  void Visit(const State& state, size_t before, size_t thread, const char* what, const ModelOp& op);
  bool OperateUnseen(size_t from);
  bool Operate(size_t from, size_t thread);
  std::string Trace(size_t step) const;

  const std::vector<ModelThread> threads_;
  const size_t words_;
  const uint32_t spurious_;
  std::vector<Log> logs_;
  std::map<std::pair<size_t, uint32_t>, size_t> after_;
  std::unordered_set<std::string> visited_;
  std::vector<Step> steps_;  // the search's queue; visited steps stay, for traces
};

inline std::string ModelSearch::State::Key() const {
  std::string key;
  auto add = [&](uint64_t n) { key.append(reinterpret_cast<const char*>(&n), sizeof(uint32_t)); };
  for (const One& one : threads) {
    add(one.log);
    add(one.buffer.size() << 16 | one.spurious << 1 | (one.asleep ? 1 : 0));
    for (const auto& [word, value] : one.buffer) {
      add(word);
      add(value);
    }
  }
  for (const uint32_t word : memory) add(word);
  return key;
}

inline size_t ModelSearch::LogOf(size_t before, size_t thread,
                                 const std::vector<uint32_t>& results) {
  logs_.push_back({before, thread, results, ModelReplay::Next(threads_[thread].run, results)});
  return logs_.size() - 1;
}

inline size_t ModelSearch::After(size_t log, uint32_t result) {
  const auto known = after_.find({log, result});
  if (known != after_.end()) return known->second;
  std::vector<uint32_t> results = logs_[log].results;
  results.push_back(result);
  return after_[{log, result}] = LogOf(log, logs_[log].thread, results);
}

inline uint32_t ModelSearch::Seen(const State& state, const One& one, size_t word) const {
  for (size_t i = one.buffer.size(); i-- > 0;) {
    if (one.buffer[i].first == word) return one.buffer[i].second;
  }
  return state.memory[word];
}

inline void ModelSearch::Visit(const State& state, size_t before, size_t thread, const char* what,
                               const ModelOp& op) {
  if (!visited_.insert(state.Key()).second) return;
  steps_.push_back({state, before, thread, what, op});
}

// The thread's next operation, if it can be done now.
inline bool ModelSearch::Operate(size_t from, size_t thread) {
  State state = steps_[from].state;
  One& one = state.threads[thread];
  const ModelOp op = logs_[one.log].next;
  switch (op.kind) {
    case ModelOp::kLoad: {
      const uint32_t value = Seen(state, one, op.word);
      one.log = After(one.log, value);
      Visit(state, from, thread, "loads", {op.kind, op.word, value});
      return true;
    }
    case ModelOp::kStore:
      one.buffer.emplace_back(op.word, op.value);
      one.log = After(one.log, 0);
      Visit(state, from, thread, "stores into its buffer", op);
      return true;
    case ModelOp::kPause:
      if (threads_[thread].mode == WaitPolicy::Mode::kSpin) {
        // A spinning thread only loads, once or more, before it pauses. It goes on when one of the
        // loaded words has changed.
        bool changed = false;
        for (size_t log = logs_[one.log].before; logs_[log].next.kind == ModelOp::kLoad;
             log = logs_[log].before) {
          const uint32_t read = logs_[one.log].results[logs_[log].results.size()];
          changed |= Seen(state, one, logs_[log].next.word) != read;
          if (logs_[log].results.empty()) break;
        }
        if (!changed) return false;
      }
      one.log = After(one.log, 0);
      Visit(state, from, thread, "pauses", op);
      return true;
    case ModelOp::kDone:
    case ModelOp::kWrong:
      return false;
    default:
      break;
  }
  if (!one.buffer.empty()) return false;  // locked instructions and system calls
  if (op.kind == ModelOp::kSwap || op.kind == ModelOp::kAdd) {
    uint32_t& word = state.memory[op.word];
    one.log = After(one.log, word);
    word = op.kind == ModelOp::kAdd ? word + op.value : op.value;
    Visit(state, from, thread, op.kind == ModelOp::kAdd ? "adds to" : "swaps into", op);
  } else if (op.kind == ModelOp::kSleep) {
    const bool compare = op.word < ModelMachine<>::kNotCompared;
    if (compare && state.memory[op.word] != op.value) {
      one.log = After(one.log, 0);
    } else {
      one.asleep = true;
    }
    Visit(state, from, thread, one.asleep ? "sleeps on" : "does not sleep on", op);
  } else {
    one.log = After(one.log, 0);
    for (One& other : state.threads) {
      if (!other.asleep || logs_[other.log].next.word % ModelMachine<>::kNotCompared != op.word)
        continue;
      other.asleep = false;
      other.log = After(other.log, 0);
    }
    Visit(state, from, thread, "wakes those on", op);
  }
  return true;
}

// Operations that no other thread can see, and that commute with all that the others do, need not
// be tried in every order: pauses, and stores into the thread's own buffer (not out of it).
inline bool ModelSearch::OperateUnseen(size_t from) {
  for (size_t t = 0; t < threads_.size(); ++t) {
    const One& one = steps_[from].state.threads[t];
    const ModelOp::Kind kind = logs_[one.log].next.kind;
    const bool pauses = kind == ModelOp::kPause && threads_[t].mode != WaitPolicy::Mode::kSpin;
    if (!one.asleep && (pauses || kind == ModelOp::kStore)) return Operate(from, t);
  }
  return false;
}

inline std::string ModelSearch::Trace(size_t step) const {
  std::string text;
  for (; step != 0; step = steps_[step].before) {
    const Step& s = steps_[step];
    text = "\n  thread " + std::to_string(s.thread) + " " + s.what + " word " +
           std::to_string(s.op.word) + ", " + std::to_string(s.op.value) + text;
  }
  return text;
}

inline ModelResult ModelSearch::Run() {
  ModelResult result;
  State first{std::vector<One>(threads_.size()), std::vector<uint32_t>(words_, 0)};
  for (size_t t = 0; t < threads_.size(); ++t) first.threads[t].log = LogOf(0, t, {});
  visited_.insert(first.Key());
  steps_.push_back({first, 0, 0, "", {}});
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (OperateUnseen(s)) continue;
    bool goes_on = false, all_done = true, wrong = false;
    for (size_t t = 0; t < threads_.size(); ++t) {
      const One one = steps_[s].state.threads[t];
      if (!one.buffer.empty()) {
        goes_on = true;
        State state = steps_[s].state;
        const auto [word, value] = one.buffer.front();
        state.memory[word] = value;
        state.threads[t].buffer.erase(state.threads[t].buffer.begin());
        Visit(state, s, t, "has its oldest store reach", {ModelOp::kStore, word, value});
      }
      const ModelOp op = logs_[one.log].next;
      all_done &= op.kind == ModelOp::kDone;
      wrong |= op.kind == ModelOp::kWrong;
      if (!one.asleep) {
        goes_on |= Operate(s, t);
      } else if (one.spurious < spurious_) {  // a spurious wake is possible, but cannot be relied
                                              // on
        State state = steps_[s].state;
        state.threads[t].asleep = false;
        ++state.threads[t].spurious;
        state.threads[t].log = After(one.log, 0);
        Visit(state, s, t, "wakes for no reason from", op);
      }
    }
    if (wrong || (!goes_on && !all_done)) {
      result.stuck = Trace(s);
      break;
    }
    result.ends += !goes_on;
  }
  result.states = steps_.size();
  return result;
}

}  // namespace larder::sync
