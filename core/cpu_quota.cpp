// SPDX-License-Identifier: Apache-2.0
// cpu_quota.cpp -- see cpu_quota.h.
//
// /proc/self/cgroup names the group of each hierarchy, /proc/self/mountinfo where a hierarchy is mounted and from which group on: a
// container may see its own group alone. From the group's folder up to the mount each folder may hold a quota.
#include "core/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace narrows {
namespace {

struct Mount {
  bool v2 = false;
  std::string group;   // the one that is shown at `folder`
  std::string folder;  // where it is mounted
};

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// A field of mountinfo, where a space in a path is \040.
std::string next_field(std::istream& line) {
  std::string field;
  line >> field;
  for (size_t at = field.find('\\'); at < field.size(); at = field.find('\\', at + 1))
    field.replace(at, 4, 1, static_cast<char>(std::stoi("0" + field.substr(at + 1, 3), nullptr, 8)));
  return field;
}

// "36 35 0:30 /group /folder rw,relatime shared:7 - cgroup cgroup rw,cpu": any number of fields before the dash.
std::vector<Mount> cgroup_mounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    Mount mount;
    for (int i = 0; i < 3; ++i) next_field(line);
    mount.group = next_field(line);
    mount.folder = next_field(line);
    while (line && next_field(line) != "-") {
    }
    const std::string type = next_field(line);
    next_field(line);
    mount.v2 = type == "cgroup2";
    if (mount.v2 || (type == "cgroup" && has_word(next_field(line), "cpu"))) mounts.push_back(mount);
  }
  return mounts;
}

// In CPUs, rounded up; 0: no quota is set there.
uint64_t quota_in(const std::string& folder, bool v2) {
  int64_t quota = 0, period = 0;  // "max" is read as 0, and version 1 has -1 for it
  std::ifstream file(folder + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
  file >> quota;
  if (v2)
    file >> period;
  else
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? static_cast<uint64_t>(quota / period + (quota % period != 0)) : 0;
}

// A limit of 0 is none.
uint64_t smaller(uint64_t a, uint64_t b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

// Of a group and its ancestors, as far as the mount shows them.
uint64_t quota_of(const std::string& root, const Mount& mount, const std::string& group) {
  std::string below = group;  // the path of a group below the mount's own; that one's is ""
  const std::string shown = mount.group == "/" ? "" : mount.group;
  if (shown.compare(0, 3, "/..") == 0)
    below = "";  // the mount begins above the namespace of cgroups that this process is in: at an ancestor
  else if (group.compare(0, shown.size(), shown) == 0 && (group.size() == shown.size() || group[shown.size()] == '/'))
    below.erase(0, shown.size());
  else
    return 0;  // the mount shows another part of the tree
  const std::string top = root + mount.folder;
  uint64_t quota = quota_in(top, mount.v2);
  for (; !below.empty(); below.resize(below.rfind('/'))) quota = smaller(quota, quota_in(top + below, mount.v2));
  return quota;
}

}  // namespace

uint64_t cpu_quota(const std::string& root) {
  const std::vector<Mount> mounts = cgroup_mounts(root);
  uint64_t quota = 0;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/group", of version 2 "0::/group"
    const size_t controllers = line.find(':') + 1, group = line.find(':', controllers) + 1;
    if (controllers == 0 || group == 0) continue;
    const std::string list = line.substr(controllers, group - 1 - controllers);
    if (!list.empty() && !has_word(list, "cpu")) continue;
    for (const Mount& mount : mounts)
      if (mount.v2 == list.empty()) quota = smaller(quota, quota_of(root, mount, line.substr(group)));
  }
  return quota;
}

}  // namespace narrows
