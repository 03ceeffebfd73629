// man.h - the manual page, made from the commands and options that --help shows, so that the two cannot differ.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace bulkhead::cli {

std::string manual(const CLI::App& app, const std::string& version);  // for man(1), section 1

}  // namespace bulkhead::cli
