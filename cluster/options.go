package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"kagami/messages"
)

// Options is what a node needs to be one of several. Without it a node
// is alone: no listener, no JetStream, the journal is direct.
type Options struct {
	// Name of the embedded NATS cluster. Servers of different names refuse each
	// other. Default "kagami".
	Name string
	// Listen is host:port where other nodes connect to. Port 0 takes a free one,
	// for tests.
	Listen string
	// Advertise is host:port that other nodes are told, if it isn't Listen.
	Advertise string
	// Peers are the other configured nodes and where they listen, host:port. The
	// node itself may be among them; it is left out.
	Peers map[messages.NodeID]string
	// External is an existing NATS cluster that is used instead of servers of the nodes'
	// own: then there are no peers, and none of Name, Listen, Advertise, StoreDir,
	// SyncInterval and the security of connections between nodes is used.
	External *External
	// StoreDir is the folder of the JetStream files.
	StoreDir string
	// SyncInterval is how often JetStream's files are synced. 0 syncs in every
	// write (the default of a cluster).
	SyncInterval time.Duration
	// TLSCert, TLSKey and TLSCA are PEM files for connections between nodes; all
	// or none. Both sides show a certificate that TLSCA signed.
	TLSCert, TLSKey, TLSCA string
	// User and Password, or Token, must be the same on all nodes. Empty: no
	// authentication between nodes, which Validate accepts with TLS or on
	// loopback addresses only.
	User, Password, Token string
	// AllowClear lets nodes that aren't on one machine do without TLS.
	AllowClear bool
	// BeatInterval between two heartbeats. Default 250 ms.
	BeatInterval time.Duration
	// DeadAfter is how long a node may be silent before it counts as dead.
	// Default 2.5 s.
	DeadAfter time.Duration
	// JournalBytesMax limits one journal stream; more is refused, never dropped.
	// Default 8 GiB.
	JournalBytesMax int64
	// DuplicateWindow is how long a stream remembers message ids. Default 2 min.
	DuplicateWindow time.Duration
	// ElectionTimeout is how long a journal stream's leader may be silent at least
	// before another node is elected, and half of what it may be at most. 0: the
	// NATS server's own timers, 4 to 9 s. It is the same on all nodes, and in all
	// servers of a process.
	ElectionTimeout time.Duration
}

// WithDefaults is a copy with every zero field that has a default set.
func (o Options) WithDefaults() Options {
	o.Name = cmp.Or(o.Name, "kagami")
	o.BeatInterval = cmp.Or(o.BeatInterval, 250*time.Millisecond)
	o.DeadAfter = cmp.Or(o.DeadAfter, 2500*time.Millisecond)
	o.JournalBytesMax = cmp.Or(o.JournalBytesMax, 8<<30)
	o.DuplicateWindow = cmp.Or(o.DuplicateWindow, 2*time.Minute)
	return o
}

// Validate reports all faults of the options of a node, joined; each wraps
// ErrBadOption. It reads no file.
func (o Options) Validate(self messages.NodeID) error {
	o = o.WithDefaults()
	var errs []error
	bad := func(format string, v ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrBadOption}, v...)...))
	}
	if o.External != nil {
		errs = append(errs, o.External.Validate())
	} else {
		o.checkOwnServers(bad, self)
	}
	if o.SyncInterval < 0 || o.BeatInterval < 0 || o.JournalBytesMax < 0 || o.DuplicateWindow < 0 {
		bad("negative value: sync interval %v, beat interval %v, journal bytes %d, duplicate window %v",
			o.SyncInterval, o.BeatInterval, o.JournalBytesMax, o.DuplicateWindow)
	}
	if e := o.ElectionTimeout; e != 0 && (e < ElectionTimeoutMin || e > electionMinDefault) {
		bad("election timeout %v is neither 0 nor from %v to %v", e, ElectionTimeoutMin, electionMinDefault)
	}
	if o.DeadAfter < 2*o.BeatInterval {
		bad("a node would be dead after %v with a beat every %v: at least two beats must fit", o.DeadAfter, o.BeatInterval)
	}
	return errors.Join(errs...)
}

func (o Options) checkOwnServers(bad func(string, ...any), self messages.NodeID) {
	if strings.ContainsAny(o.Name, " \t\r\n") {
		bad("cluster name %q has white space", o.Name)
	}
	if o.StoreDir == "" {
		bad("no folder for the journal")
	}
	addresses := []string{o.Listen}
	checkAddress(bad, "listen address", o.Listen, true)
	if o.Advertise != "" {
		checkAddress(bad, "advertised address", o.Advertise, false)
	}
	if len(o.others(self)) == 0 {
		bad("no peers: a cluster needs other nodes")
	}
	seen := map[string]messages.NodeID{}
	for _, id := range slices.Sorted(maps.Keys(o.Peers)) {
		a := o.Peers[id]
		checkAddress(bad, fmt.Sprintf("address of node %d", id), a, false)
		if other, ok := seen[a]; ok {
			bad("nodes %d and %d have the same address %s", other, id, a)
		}
		seen[a] = id
		addresses = append(addresses, a)
	}
	o.checkSecurity(bad, addresses)
}

func (o Options) checkSecurity(bad func(string, ...any), addresses []string) {
	files := 0
	for _, f := range []string{o.TLSCert, o.TLSKey, o.TLSCA} {
		if f != "" {
			files++
		}
	}
	if files != 0 && files != 3 {
		bad("TLS between nodes needs certificate, key and CA, %d of these 3 are set", files)
	}
	if o.Token != "" && (o.User != "" || o.Password != "") {
		bad("both a token and a user are set for connections between nodes")
	}
	if (o.User == "") != (o.Password == "") {
		bad("user and password for connections between nodes must be set together")
	}
	if strings.HasPrefix(o.Password, "$2") || strings.HasPrefix(o.Token, "$2") {
		bad("the secret of connections between nodes begins like a bcrypt hash; it must be plain, as it is sent to others")
	}
	i := slices.IndexFunc(addresses, func(a string) bool { return !isLoopback(a) })
	if files != 0 || i < 0 {
		return
	}
	if o.User == "" && o.Token == "" {
		bad("connections between nodes have neither TLS nor credentials and %s isn't a loopback address", addresses[i])
	}
	if !o.AllowClear {
		bad("connections between nodes have no TLS and %s isn't a loopback address: set cluster.tls.*, or cluster.allow.clear=true if nobody else is on that network", addresses[i])
	}
}

// mayListen reports whether nodes may be met at an address: in the clear on loopback only.
func (o Options) mayListen(at net.IP) bool { return o.TLSCert != "" || o.AllowClear || at.IsLoopback() }

func checkAddress(bad func(string, ...any), what, address string, zeroPort bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		bad("%s %q isn't host:port", what, address)
		return
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !zeroPort {
		bad("%s %q: port must be 1 to 65535", what, address)
	}
}

// isLoopback goes by what is written: of names only localhost counts, and OpenServer looks
// at what that has become.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // reported already
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// others lists the configured peers without the node itself, by id.
func (o Options) others(self messages.NodeID) []messages.NodeID {
	ids := slices.Sorted(maps.Keys(o.Peers))
	return slices.DeleteFunc(ids, func(id messages.NodeID) bool { return id == self })
}

// credentials are those of routes: NATS knows users only there, so a token is
// the password of a fixed user.
func (o Options) credentials() (user, password string) {
	if o.Token != "" {
		return "token", o.Token
	}
	return o.User, o.Password
}

// routes are the URLs of the peers.
func (o Options) routes(self messages.NodeID) []*url.URL {
	user, password := o.credentials()
	var urls []*url.URL
	for _, id := range o.others(self) {
		u := &url.URL{Scheme: "nats-route", Host: o.Peers[id]}
		if user != "" {
			u.User = url.UserPassword(user, password)
		}
		urls = append(urls, u)
	}
	return urls
}
