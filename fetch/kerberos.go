package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"

	"kagami/messages/stores"
)

// krb5File is where realms and their KDCs are read from, unless KRB5_CONFIG names
// another file.
const krb5File = "/etc/krb5.conf"

// kerberosLogin is who a mirror is by Kerberos. Its files are read for each session, so
// that renewed ones work without a restart.
type kerberosLogin struct {
	keytab, principal, service string
}

// KerberosError says that a file of the Kerberos login can't be used.
type KerberosError struct {
	What string // keyTab, or the name of the file of realms
	File string
	Err  error
}

// Error names the file and the fault; no key shows in it.
func (e *KerberosError) Error() string { return fmt.Sprintf("%s %s: %v", e.What, e.File, e.Err) }

// Unwrap is the file system's or parser's error.
func (e *KerberosError) Unwrap() error { return e.Err }

// parseKerberos reads the options of Java's Krb5LoginModule that say which keytab and
// which principal. Tickets of somebody's session and passwords have no place in a server.
func (c *Config) parseKerberos(service string, options map[string]string) []error {
	var faults []error
	switch other := options["serviceName"]; {
	case service == "" && other == "":
		faults = append(faults, invalid(keyKerberosService, "is required with GSSAPI: the first part of the brokers' principals"))
	case service != "" && other != "" && service != other:
		faults = append(faults, invalid(keyKerberosService, "is another than serviceName in %s", keyJAAS))
	case service == "":
		service = other
	}
	if options["keyTab"] == "" || options["principal"] == "" {
		faults = append(faults, invalid(keyJAAS, "keyTab and principal are required with GSSAPI"))
	}
	if options["useKeyTab"] != "true" || options["useTicketCache"] == "true" {
		faults = append(faults, invalid(keyJAAS, "GSSAPI works with useKeyTab=true, and not with useTicketCache=true"))
	}
	c.User = options["principal"]
	c.kerberos = &kerberosLogin{keytab: options["keyTab"], principal: options["principal"], service: service}
	return faults
}

// auth is what the next session is authenticated with; it is used for that one only.
func (k *kerberosLogin) auth(context.Context) (kerberos.Auth, error) {
	file := os.Getenv("KRB5_CONFIG")
	if file == "" {
		file = krb5File
	}
	realms, err := config.Load(file)
	if err != nil {
		return kerberos.Auth{}, &KerberosError{What: "realms", File: file, Err: err}
	}
	keys, err := loadKeytab(k.keytab)
	if err != nil {
		return kerberos.Auth{}, &KerberosError{What: keyJAAS + ": keyTab", File: k.keytab, Err: err}
	}
	name, realm := k.principal, realms.LibDefaults.DefaultRealm
	if i := strings.LastIndexByte(name, '@'); i >= 0 {
		name, realm = name[:i], name[i+1:]
	}
	return kerberos.Auth{Client: client.NewWithKeytab(name, realm, keys, realms), Service: k.service}, nil
}

var errKeytab = errors.New("it is no keytab, or damaged")

// loadKeytab reads a keytab. What its parser says isn't told: that holds all bytes of the file, keys
// among them.
func loadKeytab(path string) (kt *keytab.Keytab, err error) {
	b, err := stores.ReadFile(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // it believes lengths
			kt, err = nil, errKeytab
		}
	}()
	kt = new(keytab.Keytab)
	if kt.Unmarshal(b) != nil {
		return nil, errKeytab
	}
	return kt, nil
}
