// What docs/how-to/one-limit-for-a-fleet.md assumes.
#include <string>

std::string pay();
void reply(int status, const std::string& text);
