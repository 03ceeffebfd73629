// Boost.JSON is used without its library: this is where it is compiled.
#include <boost/json/src.hpp>
