package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rightCluster is nil if every connection so far leads to a broker of the source's cluster.
// kgo connects anew by itself, and what is at the address may be another cluster by then:
// one with a topic of the same name, or a copy with the same id. So the answers of a new
// connection count only after one that was made later has told the right id: an old one,
// and kgo has two for each broker, may still lead to where the address led before. Owned by
// the loop.
func (w *Worker) rightCluster(ctx context.Context) error {
	dials := w.wait.dials.Load()
	if w.cfg.ClusterID == "" || dials == w.checkedDials {
		return nil
	}
	client, err := newClient(clientOptions{
		config: w.cfg.Source, clientID: w.cfg.ClientID(), seeds: []string{w.cfg.Address}, timeout: w.cfg.RequestTimeout, log: w.log, quiet: w.outage.Load,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := w.metadata(ctx, client, ""); err != nil {
		return err
	}
	w.checkedDials = dials
	return nil
}

// metadata asks the worker's broker for its cluster's id, which must be the right one, and
// for a topic, "" for none.
func (w *Worker) metadata(ctx context.Context, client *kgo.Client, topic string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	if topic != "" {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(topic)
		req.Topics = append(req.Topics, t)
	}
	kresp, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp, ok := kresp.(*kmsg.MetadataResponse)
	if !ok {
		return nil, errors.New("metadata: answer of another kind")
	}
	if id := resp.ClusterID; id != nil && w.cfg.ClusterID != "" && *id != w.cfg.ClusterID {
		return nil, fmt.Errorf("%w: its cluster id is %s, the source's %s", ErrOtherCluster, *id, w.cfg.ClusterID)
	}
	return resp, nil
}
