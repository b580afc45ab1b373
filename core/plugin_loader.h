// SPDX-License-Identifier: Apache-2.0
// plugin_loader.h -- from a folder to plugins: which files are candidates, and what makes one refused. SECURITY.md says what
// loading means; docs/abi.md, "A plugin's life", says the rules to users.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"

namespace narrows {

// Loads one file and asks it for its table. Never throws for a bad file: the Backend that comes back says why it was refused.
std::unique_ptr<Backend> load_plugin(const std::string& path);

// Every narrows_*.so of an absolute folder, by file name. A folder that cannot be searched gives one refused Backend that says so.
std::vector<std::unique_ptr<Backend>> load_folder(const std::string& folder);

// "narrows/backends" beside libnarrows.
std::string own_folder();

// That no plugin does, and where one would be looked for.
std::string no_plugin_serves(DLDevice device);

std::vector<std::string> split_path(const std::string& folders);

}  // namespace narrows
