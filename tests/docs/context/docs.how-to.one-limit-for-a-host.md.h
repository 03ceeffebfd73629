// What docs/how-to/one-limit-for-a-host.md assumes.
#include <string>

std::string render();
void reply(int status, const std::string& text);
