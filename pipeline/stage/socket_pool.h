// The pool of a socket's threads: where they run and how they meet.
#pragma once

#include <span>

#include "pipeline/plan/stage_plan.h"
#include "sync/wait.h"
#include "threadpool/pool.h"

namespace larder::pipeline::inline stage {

inline threadpool::PoolOptions PoolOf(std::span<const PlanThread> threads,
                                      const sync::WaitPolicy& wait) {
  threadpool::PoolOptions pool{.cpus = {}, .group_of_thread = {}, .wait = wait};
  for (const PlanThread& thread : threads) {
    pool.cpus.push_back(thread.cpu);
    pool.group_of_thread.push_back(thread.l3_group);
  }
  return pool;
}

}  // namespace larder::pipeline::stage
