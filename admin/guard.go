package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// guard asks who a client is, if the node is to know. Whether it lives and is ready anyone
// may ask: probes have no password.
func guard(cfg Config, next http.Handler) http.Handler {
	if cfg.User == "" && !cfg.ClientCertificate {
		return next
	}
	user, password := sha256.Sum256([]byte(cfg.User)), sha256.Sum256([]byte(cfg.Password))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		if cfg.ClientCertificate && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			http.Error(w, "a client certificate is needed", http.StatusForbidden)
			return
		}
		if cfg.User == "" {
			next.ServeHTTP(w, r)
			return
		}
		u, p, _ := r.BasicAuth()
		hu, hp := sha256.Sum256([]byte(u)), sha256.Sum256([]byte(p))
		if subtle.ConstantTimeCompare(hu[:], user[:])&subtle.ConstantTimeCompare(hp[:], password[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="kagami", charset="UTF-8"`)
			http.Error(w, "user and password are needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
