// body of docs/how-to/split-a-database-pool.md: boost::asio::awaitable<void>
bulkhead::TimePoint deadline;
bulkhead::postgres::ConnectionOptions connection;
void log(const std::string&);
void reply(int status, const std::string& message);
