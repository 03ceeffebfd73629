#include <map>
#include <string>
std::map<std::string, std::string> request;
bulkhead::Registry registry;
void reply(int status, std::string_view type, const std::string& body);
