package broker

import (
	"context"

	"kagami/messages"
	"kagami/messages/groups"
)

// fakeShares keeps share groups in the fake coordinator; every state begins at 0.
type fakeShares struct{ w *world }

func (f fakeShares) Look(ctx context.Context, group string) (*groups.ShareLooked, map[groups.ShareKey]groups.ShareState, error) {
	a := f.w.groups.Ask(ctx, nil, groups.LookShare{Group: group}).(*groups.ShareLooked)
	states := map[groups.ShareKey]groups.ShareState{}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			states[groups.ShareKey{Group: group, Topic: t.ID, Partition: p}] = groups.ShareState{}
		}
	}
	return a, states, a.Err
}

func (f fakeShares) Alter(ctx context.Context, group string, set []groups.ShareSet) error {
	r := groups.AlterShare{Group: group}
	for _, s := range set {
		r.Add = append(r.Add, groups.ShareTopic{ID: s.Key.Topic, Name: f.w.Image().TopicByID(s.Key.Topic).Name, Partitions: []int32{s.Key.Partition}})
	}
	return f.w.groups.Ask(ctx, nil, r).(*groups.Done).Err
}

func (f fakeShares) Forget(ctx context.Context, group string, topics []messages.TopicID) (map[messages.TopicID]bool, error) {
	looked, _, err := f.Look(ctx, group)
	had := map[messages.TopicID]bool{}
	if err != nil {
		return had, err
	}
	for _, t := range looked.Topics {
		had[t.ID] = true
	}
	return had, f.w.groups.Ask(ctx, nil, groups.AlterShare{Group: group, Remove: topics}).(*groups.Done).Err
}

func (f fakeShares) Delete(ctx context.Context, group string) error {
	if _, _, err := f.Look(ctx, group); err != nil {
		return err
	}
	return f.w.groups.Ask(ctx, nil, groups.Delete{Group: group}).(*groups.Done).Err
}
