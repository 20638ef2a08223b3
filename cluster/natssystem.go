package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"go.uber.org/zap"

	"kagami/messages"
)

// Servers are taken out of JetStream's own group by its system account, which no
// client but this process gets into: the embedded server listens for none.

// systemUsers has the server know two users: the one of the journal, for whoever says
// nothing, and one of the system account, who has the key that is returned. They are
// keys and not passwords, which the server would warn of.
func systemUsers(options *server.Options) (nkeys.KeyPair, error) {
	node, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make key of the journal's user: %w", err)
	}
	key, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make key of the system user: %w", err)
	}
	nodeID, err := node.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make key of the journal's user: %w", err)
	}
	keyID, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("make key of the system user: %w", err)
	}
	system := server.NewAccount(server.DEFAULT_SYSTEM_ACCOUNT)
	options.Accounts, options.SystemAccount = []*server.Account{system}, system.Name
	options.Nkeys = []*server.NkeyUser{{Nkey: nodeID}, {Nkey: keyID, Account: system}}
	options.NoAuthUser = nodeID
	return key, nil
}

// systemLogin is how this process gets into the system account.
func systemLogin(key nkeys.KeyPair) (nats.Option, error) {
	id, err := key.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read key of the system user: %w", err)
	}
	return nats.Nkey(id, key.Sign), nil
}

// natsPeerRemoved is for how long a server that was taken out isn't let in again by its
// name. The node that does it makes sure that it is dead; another one may take its id.
//
//go:linkname natsPeerRemoved github.com/nats-io/nats-server/v2/server.peerRemoveTimeout
var natsPeerRemoved time.Duration

// peerRemoved is what it is set to.
const peerRemoved = 5 * time.Second

// setPeerRemoved comes before the first server of the process, whose goroutines read
// the value without a lock.
var setPeerRemoved = sync.OnceFunc(func() { natsPeerRemoved = peerRemoved })

// removeTry bounds one try to take a server out.
const removeTry = 3 * time.Second

// Codes of JetStream's API for servers.
const (
	codeMemberChange jetstream.ErrorCode = 10202 // another one is under way
	codeNotMember    jetstream.ErrorCode = 10044
)

// peerID is JetStream's name of a server in its groups.
func peerID(name string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	out := make([]byte, 8)
	for i := range out {
		out[i] = digits[int(sum[i])%len(digits)]
	}
	return string(out)
}

// JournalServers lists which of some nodes' servers JetStream's group has, by id: of
// these a majority is needed to make and move streams, whether they are there or not.
func (s *Server) JournalServers(of []messages.NodeID) ([]messages.NodeID, error) {
	if s.nats == nil {
		return nil, nil
	}
	info, err := s.nats.Jsz(&server.JSzOptions{})
	if err != nil {
		return nil, fmt.Errorf("list servers of the journal: %w", err)
	}
	if info.Meta == nil || info.Meta.Leader == "" {
		return nil, fmt.Errorf("list servers of the journal: %w", errNoLeader)
	}
	ids := []string{peerID(info.Meta.Leader), peerID(s.nats.Name())}
	for _, p := range info.Meta.Replicas {
		ids = append(ids, p.Peer)
	}
	return slices.DeleteFunc(slices.Clone(of), func(id messages.NodeID) bool { return !slices.Contains(ids, peerID(natsName(id))) }), nil
}

// RemoveServer takes the server of a dead node out of JetStream's group for good, and
// out of every stream that has a copy there; others take its place as far as there are
// any. One try: without a leader of the group nobody answers. It does nothing if that one isn't in the group. With an external cluster, whose
// servers aren't nodes, it does nothing at all.
func (s *Server) RemoveServer(ctx context.Context, node messages.NodeID) error {
	if s.nats == nil {
		return nil
	}
	login, err := systemLogin(s.system)
	if err != nil {
		return err
	}
	conn, err := s.connect("system", zap.NewNop(), login)
	if err != nil {
		return err
	}
	defer conn.Close()
	payload, err := json.Marshal(map[string]string{"peer_id": peerID(natsName(node))})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, removeTry, errTry)
	defer cancel()
	reply, err := conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: "$JS.API.SERVER.REMOVE", Data: payload})
	if err != nil {
		return fmt.Errorf("take server of node %d out of the journal: %w", node, err)
	}
	var outcome struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &outcome); err != nil {
		return fmt.Errorf("take server of node %d out of the journal: read answer: %w", node, err)
	}
	if outcome.Error != nil && !isAPIError(outcome.Error, codeNotMember) {
		return fmt.Errorf("take server of node %d out of the journal: %w", node, outcome.Error)
	}
	return nil
}
