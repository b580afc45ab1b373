// SPDX-License-Identifier: Apache-2.0
// test_thread_count.cpp -- with how many threads a runtime is made: core/thread_count.cpp, and core/cpu_quota.cpp on folders that
// stand in for /proc and /sys, and on a real cgroup where one may be made.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fixture.h"

using namespace narrows::test;
namespace fs = std::filesystem;

namespace {

uint32_t affinity() {
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  return static_cast<uint32_t>(CPU_COUNT(&set));
}

uint32_t threads(uint32_t option = 0) {
  const Runtime rt(Options{.num_threads = option});
  return nw_get_num_threads(rt);
}

// A folder in the place of '/'.
class Root {
 public:
  Root(const std::string& groups, const std::string& mounts) : variable_("NARROWS_TEST_ROOT", folder_.path().c_str()) {
    write("/proc/self/cgroup", groups);
    write("/proc/self/mountinfo", mounts);
  }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(folder_.path() + path).parent_path());
    std::ofstream(folder_.path() + path) << text;
  }

 private:
  Folder folder_;
  Environment variable_, narrows_{"NARROWS_NUM_THREADS", nullptr}, omp_{"OMP_NUM_THREADS", nullptr};
};

const std::string kOther = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
const std::string kV2 = kOther + "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kV1 = kOther +
                        "31 24 0:27 / /sys/fs/cgroup ro shared:4 - tmpfs tmpfs ro,mode=755\n"
                        "32 31 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                        "33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n";
const std::string kV1Folder = "/sys/fs/cgroup/cpu,cpuacct";

// In microseconds.
void quota_v1(const Root& root, const std::string& folder, const std::string& quota, const std::string& period = "100000") {
  root.write(folder + "/cpu.cfs_quota_us", quota + "\n");
  root.write(folder + "/cpu.cfs_period_us", period + "\n");
}

}  // namespace

TEST_CASE("how many threads: the smallest of variables and the affinity mask") {
  const uint32_t allowed = affinity();
  const Root root("", "");
  CHECK(threads() == allowed);
  for (const char* name : {"NARROWS_NUM_THREADS", "OMP_NUM_THREADS"}) {
    INFO(name);
    const Environment variable(name, "1");
    CHECK(threads() == 1);
    CHECK(threads(5) == 5);  // what a caller asks for is not lowered
  }
  for (const char* text : {"1024", "99999999999999999999", " 4096 ", "2000\t"}) {
    const Environment narrows("NARROWS_NUM_THREADS", text), omp("OMP_NUM_THREADS", text);
    INFO("'" << text << "'");
    CHECK(threads() == allowed);
  }
  {
    const Environment narrows("NARROWS_NUM_THREADS", "8000"), omp("OMP_NUM_THREADS", " 1 , 7");  // a number for each level
    CHECK(threads() == 1);
  }
  CHECK(threads(5000) == 1024);
}

TEST_CASE("what this machine grants") {
  const Environment none("NARROWS_TEST_ROOT", nullptr);
  CHECK(threads() >= 1);
  CHECK(threads() <= affinity());
}

TEST_CASE("a variable that is no number of threads is ignored with a warning") {
  const uint32_t allowed = affinity();
  const Root root("", "");
  for (const char* name : {"NARROWS_NUM_THREADS", "OMP_NUM_THREADS"})
    for (const char* text : {"0", "-4", "many", "1.5", "1x", " ", "0x1", ",1"}) {
      INFO(name << "='" << text << "'");
      const Environment variable(name, text);
      const Runtime rt(Options{.num_threads = 0});
      CHECK(nw_get_num_threads(rt) == allowed);
      CHECK(contains(rt.log(), std::string(name) + " = '" + text + "'"));
      CHECK(contains(rt.log(), "1 or more"));
    }
  const Environment list("NARROWS_NUM_THREADS", "1,2"), none("OMP_NUM_THREADS", "");
  const Runtime rt(Options{.num_threads = 0});
  CHECK(nw_get_num_threads(rt) == allowed);
  CHECK(contains(rt.log(), "NARROWS_NUM_THREADS = '1,2'"));
  CHECK(!contains(rt.log(), "OMP_NUM_THREADS"));  // empty is as not set
}

TEST_CASE("the affinity mask") {
  const Root root("", "");
  cpu_set_t set, one;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &set)) CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(threads() == 1);
  REQUIRE(sched_setaffinity(0, sizeof set, &set) == 0);
  CHECK(threads() == static_cast<uint32_t>(CPU_COUNT(&set)));
}

// The affinity mask of a machine with one processor hides every quota.
#define NEEDS_TWO_PROCESSORS() \
  if (affinity() < 2) SKIP("this process may use one processor, and a quota could not lower that")

TEST_CASE("the quota of a cgroup of version 2") {
  NEEDS_TWO_PROCESSORS();
  const uint32_t allowed = affinity();
  const Root root("0::/a/b\n", kV2);
  const std::string mount = "/sys/fs/cgroup";
  CHECK(threads() == allowed);  // no file at all
  root.write(mount + "/a/b/cpu.max", "max 100000\n");
  CHECK(threads() == allowed);
  root.write(mount + "/a/b/cpu.max", "100000 100000\n");
  CHECK(threads() == 1);
  root.write(mount + "/a/b/cpu.max", "100001 100000\n");  // rounded up
  CHECK(threads() == 2);
  root.write(mount + "/a/b/cpu.max", "1000 100000\n");  // a hundredth
  CHECK(threads() == 1);
  root.write(mount + "/a/b/cpu.max", "900000000000000 100000\n");
  CHECK(threads() == allowed);
  for (const char* odd : {"", "100000", "100000 0", "0 100000", "-1 100000", "100000 -1", "half 100000"}) {
    INFO("cpu.max '" << odd << "'");
    root.write(mount + "/a/b/cpu.max", odd);
    CHECK(threads() == allowed);
  }
}

TEST_CASE("of nested groups the smallest quota counts") {
  NEEDS_TWO_PROCESSORS();
  const std::string mount = "/sys/fs/cgroup";
  for (const char* smallest : {"", "/a", "/a/b", "/a/b/c:d e"}) {
    INFO("in " << smallest);
    const Root root("0::/a/b/c:d e\n", kV2);
    for (const char* folder : {"", "/a", "/a/b", "/a/b/c:d e"}) root.write(mount + folder + "/cpu.max", "90000000 100000\n");
    CHECK(threads() == affinity());
    root.write(mount + smallest + "/cpu.max", "50000 100000\n");
    CHECK(threads() == 1);
  }
  const Root root("0::/a/b\n", kV2);
  root.write(mount + "/a/b/c/cpu.max", "50000 100000\n");  // a child's
  root.write(mount + "/a/bb/cpu.max", "50000 100000\n");   // a neighbour's
  CHECK(threads() == affinity());
}

TEST_CASE("the quota of a cgroup of version 1") {
  NEEDS_TWO_PROCESSORS();
  const uint32_t allowed = affinity();
  const std::string groups = "11:cpuset:/other\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n";
  const Root root(groups, kV1);
  CHECK(threads() == allowed);
  quota_v1(root, kV1Folder + "/docker/abc", "-1");
  quota_v1(root, kV1Folder + "/other", "1000");
  quota_v1(root, "/sys/fs/cgroup/cpuset/other", "1000");
  CHECK(threads() == allowed);
  quota_v1(root, kV1Folder + "/docker/abc", "150000");
  CHECK(threads() == 2);
  quota_v1(root, kV1Folder + "/docker", "20000", "20000");
  CHECK(threads() == 1);
  quota_v1(root, kV1Folder + "/docker", "-1");
  CHECK(threads() == 2);
  quota_v1(root, kV1Folder, "5000", "10000");
  CHECK(threads() == 1);
}

TEST_CASE("a machine with both versions has the smaller quota") {
  NEEDS_TWO_PROCESSORS();
  const std::string unified = "34 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  const Root root("4:cpu,cpuacct:/a\n0::/b\n", kV1 + unified);
  quota_v1(root, kV1Folder + "/b", "1000");  // another group's: each version has a tree of its own
  root.write("/sys/fs/cgroup/unified/a/cpu.max", "1000 100000\n");
  CHECK(threads() == affinity());
  quota_v1(root, kV1Folder + "/a", "50000");
  CHECK(threads() == 1);
  root.write("/sys/fs/cgroup/unified/b/cpu.max", "90000000 100000\n");
  CHECK(threads() == 1);
  quota_v1(root, kV1Folder + "/a", "90000000");
  CHECK(threads() == affinity());
  root.write("/sys/fs/cgroup/unified/b/cpu.max", "50000 100000\n");
  CHECK(threads() == 1);
}

TEST_CASE("a container sees a part of the tree") {
  NEEDS_TWO_PROCESSORS();
  const auto mount = [](const std::string& shown) {
    return "31 24 0:27 " + shown + " /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
  };
  const std::string folder = "/sys/fs/cgroup/cpu", groups = "4:cpu:/docker/abc/inner\n";
  {
    const Root root(groups, mount("/docker/abc"));
    quota_v1(root, folder + "/inner", "90000000");
    CHECK(threads() == affinity());
    quota_v1(root, folder, "50000");
    CHECK(threads() == 1);
  }
  {
    const Root root(groups, mount("/docker/abc/inner"));
    quota_v1(root, folder, "50000");
    CHECK(threads() == 1);
  }
  for (const char* another : {"/docker/ab", "/docker/abc/inner/most", "/podman"}) {
    INFO("the mount shows " << another);
    const Root root(groups, mount(another));
    quota_v1(root, folder, "50000");
    CHECK(threads() == affinity());
  }
  {
    const Root root("4:cpu:/\n", mount("/../.."));  // of a namespace that begins below the mount's group
    quota_v1(root, folder, "50000");
    CHECK(threads() == 1);
  }
}

TEST_CASE("mounts in folders of any name and lines that say nothing") {
  NEEDS_TWO_PROCESSORS();
  const Root root("\n4\n5:cpu\n0::/a\n",
                  "\n31 24 0:27 /\n31 24 0:27 / /mnt rw shared:4\n31 24 0:27 / /my\\040groups\\134 rw - cgroup2 none rw\n");
  root.write("/my groups\\/a/cpu.max", "50000 100000\n");
  CHECK(threads() == 1);
}

TEST_CASE("a process in a real cgroup with a quota") {
  NEEDS_TWO_PROCESSORS();
  const Environment narrows("NARROWS_NUM_THREADS", nullptr), omp("OMP_NUM_THREADS", nullptr);
  const std::string name = "/narrows-test-" + std::to_string(getpid());
  std::string folder;
  bool v2 = false;
  for (const char* place : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    folder = place + name;
    if (mkdir(folder.c_str(), 0755) != 0) continue;
    v2 = access((folder + "/cpu.max").c_str(), W_OK) == 0;
    if (v2 || access((folder + "/cpu.cfs_quota_us").c_str(), W_OK) == 0) break;
    rmdir(folder.c_str());
    folder.clear();
  }
  if (folder.empty() || access(folder.c_str(), F_OK) != 0) SKIP("this user may make no cgroup with a quota here");
  std::ofstream(folder + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us")) << (v2 ? "80000 100000" : "80000");
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(folder + "/cgroup.procs") << getpid() << std::flush;
    nw_runtime* rt = nullptr;
    if (nw_runtime_create(nullptr, &rt, nullptr) != NW_OK) _exit(100);
    _exit(static_cast<int>(nw_get_num_threads(rt)));
  }
  int status = -1;
  const bool ended = waitpid(child, &status, 0) == child;
  rmdir(folder.c_str());
  REQUIRE(ended);
  CHECK(WEXITSTATUS(status) == 1);
}
