package main

import (
	"context"
	"net/url"

	"kagami/broker"
	"kagami/messages"
)

type noMirrors struct{}

func (noMirrors) Describe(ctx context.Context, mirror string) ([]broker.MirrorPartition, error) {
	return nil, nil
}
func (noMirrors) State(tp messages.TopicPartition) messages.State { return messages.StateUnknown }
func (noMirrors) SourceClusterID(mirror string) string            { return "" }
func (noMirrors) CheckStart(ctx context.Context, mirror string, topics []messages.MirrorTopic) ([]error, error) {
	return make([]error, len(topics)), nil
}
func (noMirrors) CheckDelete(ctx context.Context, mirror string) error { return nil }
func (noMirrors) Recover(ctx context.Context, who messages.Requester, mirror string, topics []string) []messages.Item {
	return nil
}
func (noMirrors) ReadMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	return nil, messages.ErrCoordinatorNotAvailable
}
func (noMirrors) WriteMirrorStates(ctx context.Context, mirror string, body []byte) ([]byte, error) {
	return nil, messages.ErrCoordinatorNotAvailable
}
func (noMirrors) Live(context.Context) error  { return nil }
func (noMirrors) Ready(context.Context) error { return nil }
func (noMirrors) Query(ctx context.Context, what string, args url.Values) (any, error) {
	return []string{}, nil
}
func (n *node) brokerDeps() broker.Deps {
	return broker.Deps{Partitions: partitions{n.replicas}, Images: n.store, Controller: n.controller, Mirrors: noMirrors{}, Bus: noMirrors{}}
}
func (n *node) queries() noMirrors                       { return noMirrors{} }
func (n *node) startMirroring(ctx context.Context) error { return nil }
