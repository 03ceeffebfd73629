// tls.h - one request over TLS. OpenSSL decides which certificates to trust: by the system's authorities, or those of SSL_CERT_FILE.
#pragma once

#include <string>
#include <string_view>

namespace bulkhead::client {

// The whole answer, until the server closes, or "" with the reason in `trouble`. Ten seconds in all. `certificate`: a PEM
// file with a certificate and its private key, for a server that asks for one; "": none.
std::string ask_over_tls(const std::string& host, const std::string& port, const std::string& certificate,
                         std::string_view request, std::string& trouble);

}  // namespace bulkhead::client
