#include <string>
void query();
void reply(int status, const std::string& text);
