package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"kagami/cluster"
	"kagami/internal/ports"
	"kagami/messages"
)

// RawOptions of RawJournal.
type RawOptions struct {
	Dir      string
	Streams  int
	Bytes    int64 // in all
	Message  int   // bytes of one
	InFlight int   // messages of a stream at a time
}

// RawJournal is what the journal has to give without anything above it: three
// servers in this process, every one of which follows all streams, while messages go
// in through the first and come back there. Its processor time is this process's.
func RawJournal(ctx context.Context, o RawOptions) (took, cpu time.Duration, err error) {
	servers, err := rawServers(ctx, o.Dir)
	defer func() {
		for _, s := range servers {
			s.Close()
		}
	}()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	perStream := int(o.Bytes) / o.Message / o.Streams
	come := make([]chan struct{}, o.Streams)
	var streams []*cluster.Stream
	for at, srv := range servers {
		all, err := cluster.OpenStreams(ctx, srv, cluster.StreamsOptions{Logger: zap.NewNop()})
		if err != nil {
			return 0, 0, err
		}
		defer all.Close()
		for i := range o.Streams {
			st, err := all.Open(ctx, fmt.Sprint(i), 3)
			if err != nil {
				return 0, 0, err
			}
			tell := func() {}
			if at == 0 {
				streams = append(streams, st)
				come[i] = make(chan struct{}, o.InFlight)
				tell = func() { come[i] <- struct{}{} }
			}
			following.Go(func() {
				_ = st.Follow(ctx, 1, func(uint64, []byte) error { tell(); return nil })
			})
		}
	}
	for i, st := range streams { // finds interest on its way
		st.Publish(fmt.Sprintf("first-%d", i), []byte{0}, func(uint64, error) {})
		<-come[i]
	}
	begun, before := time.Now(), ownCPU()
	var publishing sync.WaitGroup
	payload := make([]byte, o.Message)
	for i, st := range streams {
		publishing.Go(func() {
			for n := range perStream + o.InFlight {
				if n >= o.InFlight {
					<-come[i]
				}
				if n < perStream {
					st.Publish(fmt.Sprintf("%d-%d", i, n), payload, func(uint64, error) {})
				}
			}
		})
	}
	publishing.Wait()
	return time.Since(begun), ownCPU() - before, nil
}

func rawServers(ctx context.Context, dir string) (servers []*cluster.Server, err error) {
	peers := map[messages.NodeID]string{}
	for id := messages.NodeID(1); id <= 3; id++ {
		if peers[id], err = ports.FreeAddr(); err != nil {
			return nil, err
		}
	}
	for id := messages.NodeID(1); id <= 3; id++ {
		store := filepath.Join(dir, fmt.Sprint(id))
		if err := os.MkdirAll(store, 0o755); err != nil {
			return servers, fmt.Errorf("make folder: %w", err)
		}
		s, err := cluster.OpenServer(ctx, cluster.ServerOptions{Node: id, Logger: zap.NewNop(), Cluster: &cluster.Options{Listen: peers[id], Peers: peers, StoreDir: store}})
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
