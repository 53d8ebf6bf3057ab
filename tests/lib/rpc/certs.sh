#!/bin/sh
# certs.sh FOLDER: authorities and certificates for tests, made afresh.
set -e
mkdir -p "$1" && cd "$1"
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
authority() {
    openssl req -x509 $key -keyout "$1.key" -out "$1.pem" -days 2 -subj "/CN=$1" 2>/dev/null
}
leaf() { # NAME AUTHORITY ALTERNATIVE-NAMES
    openssl req $key -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" 2>/dev/null
    printf 'subjectAltName=%s\n' "$3" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -out "$1.pem" \
        -days 2 -extfile "$1.ext" 2>/dev/null
}
authority ca
authority other-ca
leaf server ca DNS:localhost,IP:127.0.0.1
leaf server2 ca DNS:localhost,IP:127.0.0.1
leaf wrong-name ca DNS:elsewhere.example
leaf agent ca URI:spiffe://tutti/job/default/rank/3
leaf dns-agent ca DNS:agent-4.example
leaf two-names ca URI:spiffe://tutti/a,URI:spiffe://tutti/b,DNS:agent-5.example
leaf foreign other-ca URI:spiffe://tutti/job/default/rank/3
openssl ec -in server.key -aes128 -passout pass:secret -out locked.key 2>/dev/null
openssl req -in server.csr -outform DER -out server.csr.der
# A lifetime of -1 days: expired from the start.
openssl req $key -keyout expired.key -out expired.csr -subj "/CN=expired" 2>/dev/null
openssl x509 -req -in expired.csr -signkey expired.key -days -1 -out expired.pem 2>/dev/null
