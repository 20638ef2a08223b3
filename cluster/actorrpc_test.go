package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"kagami/messages"
	pb "kagami/messages/proto"
)

func TestActorRPC(t *testing.T) {
	b := openTestBus(t, nil)
	rpc := NewActorRPC(b)
	require.NoError(t, rpc.RegisterActorHandler(func(_ context.Context, actor string, msg []byte) ([]byte, error) {
		switch actor {
		case "echo":
			return msg, nil
		case "follower":
			return nil, fmt.Errorf("partition x: %w", messages.ErrNotLeader)
		case "loading":
			return nil, ErrNotReady
		case "broken":
			return nil, errors.New("disk on fire")
		case "not UTF-8":
			return nil, errors.New("bad \xff text")
		case "panics":
			panic("boom")
		default:
			return nil, fmt.Errorf("%w: %s", ErrUnknownActor, actor)
		}
	}))
	require.Error(t, rpc.RegisterActorHandler(nil), "only one handler")
	for _, tc := range []struct {
		name    string
		node    messages.NodeID
		actor   string
		wantErr error
	}{
		{"answer", 1, "echo", nil},
		{"unknown actor", 1, "partition/AAAA/0", ErrUnknownActor},
		{"not leader", 1, "follower", messages.ErrNotLeader},
		{"loading", 1, "loading", ErrNotReady},
		{"other error", 1, "broken", ErrHandler},
		{"error that is no text", 1, "not UTF-8", ErrHandler},
		{"panic", 1, "panics", ErrHandler},
		{"no such node", 2, "echo", ErrNoResponders},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := rpc.AskActor(t.Context(), tc.node, tc.actor, []byte("hi"))
			require.ErrorIs(t, err, tc.wantErr)
			if tc.wantErr == nil {
				require.Equal(t, "hi", string(got))
			}
		})
	}
	garbage, err := b.Request(t.Context(), b.NodeActor(1), []byte("\xff\xff"))
	require.NoError(t, err)
	var response pb.ActorResponse
	require.NoError(t, proto.Unmarshal(garbage, &response))
	require.Equal(t, pb.Code_CODE_BAD_REQUEST, response.GetStatus().GetCode())
	rpc.Close()
	rpc.Close()
	_, err = rpc.AskActor(t.Context(), 1, "echo", nil)
	require.ErrorIs(t, err, ErrNoResponders)
}

func TestActorQuery(t *testing.T) {
	rpc := NewActorRPC(openTestBus(t, nil))
	require.NoError(t, rpc.RegisterActorHandler(func(_ context.Context, _ string, msg []byte) ([]byte, error) {
		var q pb.Query
		if err := proto.Unmarshal(msg, &q); err != nil || q.GetActorList() == nil {
			return nil, messages.ErrInvalidRequest
		}
		return proto.Marshal(&pb.QueryResult{Result: &pb.QueryResult_ActorList{ActorList: &pb.ActorList{
			NodeId: 1, Actors: []*pb.ActorInfo{{Name: "controller", Kind: "controller", Mailbox: -1}},
		}}})
	}))
	got, err := rpc.Query(t.Context(), 1, "node", &pb.Query{Query: &pb.Query_ActorList{ActorList: &pb.ActorListQuery{}}})
	require.NoError(t, err)
	require.Equal(t, "controller", got.GetActorList().GetActors()[0].GetName())
	_, err = rpc.Query(t.Context(), 1, "node", &pb.Query{})
	require.ErrorIs(t, err, messages.ErrInvalidRequest)
	rpc.Close()
}
