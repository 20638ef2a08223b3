package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"kagami/messages/stores"
)

// adminOptions say how to reach the admin port of a node. Secrets come from files: on a
// command line others could see them.
type adminOptions struct {
	address     string // host:port, or with http:// or https:// in front
	credentials string // file with user:password
	ca          string // PEM file
	certificate string // PEM file, of this client
	key         string // PEM file; "": it is in certificate
	keyPassword string // file
}

func (o *adminOptions) flags(fs *pflag.FlagSet, address, meaning string) {
	fs.StringVar(&o.address, "admin", address, meaning+"; https://host:port with TLS")
	fs.StringVar(&o.credentials, "credentials", "", "file with user:password, where the admin port asks for them")
	fs.StringVar(&o.ca, "ca", "", "PEM file with the CA of the admin port's certificate; without one the system's count. Makes it https")
	fs.StringVar(&o.certificate, "certificate", "", "PEM file with the certificate that is shown to the admin port, and its key unless --key has it. Makes it https")
	fs.StringVar(&o.key, "key", "", "PEM file with the key of that certificate")
	fs.StringVar(&o.keyPassword, "key-password", "", "file with the password of that key, if it is encrypted")
}

// adminClient asks one node.
type adminClient struct {
	address  string
	base     string // URL
	login    *url.Userinfo
	http     *http.Client
	withTLS  bool
	withCA   bool
	withCert bool
}

var errAdminOptions = errors.New("options of the admin port")

func newAdminClient(o adminOptions) (*adminClient, error) {
	c := &adminClient{address: o.address, withCA: o.ca != "", withCert: o.certificate != ""}
	scheme, host, hasScheme := strings.Cut(o.address, "://")
	switch {
	case !hasScheme:
		host = o.address
		c.withTLS = c.withCA || c.withCert
	case scheme == "https":
		c.withTLS = true
	case scheme != "http":
		return nil, fmt.Errorf("%w: --admin %s is neither host:port nor http:// nor https://", errAdminOptions, o.address)
	case c.withCA || c.withCert:
		return nil, fmt.Errorf("%w: --ca and --certificate go with https://, not with %s", errAdminOptions, o.address)
	}
	if o.certificate == "" && (o.key != "" || o.keyPassword != "") {
		return nil, fmt.Errorf("%w: --key and --key-password go with --certificate", errAdminOptions)
	}
	host = strings.TrimSuffix(host, "/")
	c.base = "http://" + host
	var err error
	if c.login, err = readLogin(o.credentials); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	if c.withTLS {
		c.base = "https://" + host
		if transport.TLSClientConfig, err = o.tls(); err != nil {
			return nil, err
		}
	}
	// A redirect would take the credentials elsewhere; the admin port makes none.
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

func (o adminOptions) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.ca != "" {
		pool, err := stores.Store{Type: "PEM", File: o.ca}.Certificates()
		if err != nil {
			return nil, fmt.Errorf("read --ca: %w", err)
		}
		out.RootCAs = pool
	}
	if o.certificate == "" {
		return out, nil
	}
	store, err := o.keyStore()
	if err != nil {
		return nil, err
	}
	pair, err := store.KeyPair()
	if err != nil {
		return nil, fmt.Errorf("read --certificate: %w", err)
	}
	// Shown also where the server names other CAs: it says then what is wrong.
	out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return out, nil
}

func (o adminOptions) keyStore() (stores.Store, error) {
	store := stores.Store{Type: "PEM", File: o.certificate}
	if o.keyPassword != "" {
		b, err := stores.ReadFile(o.keyPassword)
		if err != nil {
			return store, fmt.Errorf("read --key-password: %w", err)
		}
		store.KeyPassword = strings.TrimRight(string(b), "\r\n")
	}
	if o.key == "" {
		return store, nil
	}
	chain, err := stores.ReadFile(o.certificate)
	if err != nil {
		return store, fmt.Errorf("read --certificate: %w", err)
	}
	key, err := stores.ReadFile(o.key)
	if err != nil {
		return store, fmt.Errorf("read --key: %w", err)
	}
	store.File, store.Key, store.Chain = "", string(key), string(chain)
	return store, nil
}

// readLogin reads user:password from a file: on a command line others could see it.
func readLogin(file string) (*url.Userinfo, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nobody asks
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(b)), ":")
	if !ok || user == "" {
		return nil, fmt.Errorf("read credentials: %s doesn't hold user:password", file)
	}
	return url.UserPassword(user, password), nil
}

// get asks for a page and returns its body.
func (c *adminClient) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.address, err)
	}
	if c.login != nil {
		password, _ := c.login.Password()
		req.SetBasicAuth(c.login.Username(), password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s (%s): %w", c.address, c.advice(err), err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", c.address, err)
	}
	text := strings.TrimSpace(string(body))
	switch {
	case resp.StatusCode == http.StatusOK:
		return body, nil
	case resp.StatusCode == http.StatusBadRequest && !c.withTLS && strings.Contains(text, "HTTP request to an HTTPS server"):
		return nil, fmt.Errorf("%s speaks https: say --admin https://... and, unless a public CA signed its certificate, --ca FILE", c.address)
	case resp.StatusCode == http.StatusUnauthorized && c.login != nil:
		return nil, fmt.Errorf("%s answers %s: it has another user or password than the file of --credentials", c.address, resp.Status)
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s answers %s: %s: say --credentials FILE", c.address, resp.Status, text)
	case resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s answers %s: %s: say --certificate FILE", c.address, resp.Status, text)
	default:
		return nil, fmt.Errorf("%s answers %s: %s", c.address, resp.Status, text)
	}
}

// advice is what may help when no answer came.
func (c *adminClient) advice(err error) string {
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown) && !c.withCA:
		return "say --ca FILE with the CA of its certificate"
	case errors.As(err, &unknown):
		return "its certificate is of another CA than those in the file of --ca"
	case errors.As(err, &host):
		return "its certificate doesn't name this host: say one that it names after --admin"
	case errors.As(err, &invalid):
		return "its certificate isn't valid: renew it there"
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return "it speaks http, not https"
	default:
		return "is the node running, and is this its kagami.admin.listen?"
	}
}
