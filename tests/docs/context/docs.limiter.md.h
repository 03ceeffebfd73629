bulkhead::TimePoint now();
