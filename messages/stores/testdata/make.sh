#!/bin/sh
# Made these files once, with OpenSSL 3: keys in every form of encryption, for a certificate
# that nobody trusts. The password of keys is keypass. two.p12 is of Java: KeyStore.setKeyEntry with
# keypass, then store with storepass, which keytool refuses.
set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout clear.key -out cert.pem -days 36500 -subj /CN=stores
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v2 aes-256-cbc -out aes256.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v2 aes-128-cbc -v2prf hmacWithSHA1 -out aes128sha1.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v2 des3 -out des3.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -scrypt -out scrypt.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v2 aes-256-cbc -v2prf hmacWithSHA512 -out sha512.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v2 camellia-256-cbc -out camellia.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v1 PBE-SHA1-3DES -out pbes1.key
openssl pkcs8 -topk8 -in clear.key -passout pass:keypass -v2 aes-256-cbc -iter 100000000 -out costly.key || true
openssl ec -in clear.key -aes256 -passout pass:keypass -out legacy.key
rm clear.key
