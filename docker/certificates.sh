#!/bin/sh
# certificates.sh DIR: an authority (ca.pem), and certificates of it for the brokers of docker-compose.yaml and for jobs.
set -eu
umask 077
cd "$1"
curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $curve -days 3650 -subj /CN=yard -keyout ca.key -out ca.pem
printf 'basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n' > jobs.ext
{ cat jobs.ext; echo subjectAltName=DNS:broker1,DNS:broker2,DNS:broker3; } > broker.ext
for who in broker jobs; do
    openssl req -new $curve -subj "/CN=$who" -keyout "$who.key" -out "$who.csr"
    openssl x509 -req -in "$who.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile "$who.ext" -out "$who.crt"
    cat "$who.key" "$who.crt" > "$who.pem"
    rm "$who.csr" "$who.ext"
done
chmod 644 ca.pem broker.pem jobs.pem # the services' user reads them
