// SPDX-License-Identifier: Apache-2.0
// folder.h -- what tests of the C compiler share: variables of the environment, and a folder for the cache and for scripts that
// stand for the compiler.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace fs = std::filesystem;

// A variable of the environment, as it was before once this goes away.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_.has_value() ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// A folder of the test's own, with the cache of what is compiled in it.
class Folder {
 public:
  Folder()
      : path_([] {
          std::string pattern = (fs::temp_directory_path() / "narrows-test-XXXXXX").string();
          return fs::path(mkdtemp(pattern.data()));
        }()),
        cache_("NARROWS_CACHE_DIR", (path_ / "cache").string()), temporary_("TMPDIR", (path_ / "tmp").string()) {
    fs::create_directory(path_ / "tmp");
  }
  ~Folder() {
    fs::permissions(path_, fs::perms::owner_all);
    fs::remove_all(path_);
  }
  fs::path operator/(const char* name) const { return path_ / name; }
  std::string script(const char* name, const std::string& body) const {
    std::ofstream(path_ / name) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path_ / name, fs::perms::owner_all);
    return (path_ / name).string();
  }
  std::vector<fs::path> objects() const {
    std::vector<fs::path> out;
    if (fs::exists(path_ / "cache" / "cpu"))
      for (const auto& entry : fs::directory_iterator(path_ / "cache" / "cpu")) out.push_back(entry.path());
    return out;
  }
  // What is kept of a call whose compiler failed.
  std::string source() const {
    for (const auto& entry : fs::recursive_directory_iterator(path_ / "tmp")) {
      if (entry.path().extension() != ".c") continue;
      std::ifstream file(entry.path());
      return {std::istreambuf_iterator<char>(file), {}};
    }
    return "";
  }

 private:
  fs::path path_;
  Environment cache_, temporary_;
};
