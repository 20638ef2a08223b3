package actors

import (
	"fmt"

	"go.uber.org/zap"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// seal encrypts the secrets of a decision's records. Without a key they are written in
// clear only into a log that has none encrypted: an operator who encrypts must not be left
// with clear text by a node that lacks the key.
func (a *controllerActor) seal(img *metadata.Image, d decision) ([]metadata.Record, messages.Outcome) {
	refused := func(err error) ([]metadata.Record, messages.Outcome) {
		return nil, messages.Outcome{Err: err}
	}
	ring := a.c.opts.Secrets
	if ring == nil && metadata.HasSecrets(d.records) {
		for id := range img.SecretCounts() {
			if id != "" {
				return refused(fmt.Errorf("%w: secrets of this cluster are encrypted (key %s), and the controller, node %d, has no key: set %s there as on the other nodes and restart it",
					messages.ErrPolicyViolation, id, a.c.opts.Node, configs.SecretsKeyFile))
			}
		}
	}
	records, err := metadata.Seal(ring, d.records)
	if err != nil {
		return refused(err)
	}
	return records, d.outcome
}

// reseal has what isn't under this node's first key written again, before anything else:
// keys come into use, and go, when a controller that knows of it claims. After each piece it is
// asked again.
func (a *controllerActor) reseal() {
	img, ring := a.c.opts.Store.Image(), a.c.opts.Secrets
	due := len(img.Reseal(ring))
	if due == 0 {
		return
	}
	a.log.Info("secrets of the metadata log are written again", zap.Int("records", due), zap.String("key", ring.Primary()), zap.Bool("clear", ring.Primary() == ""))
	a.pending = append([]*controllerSubmit{{
		cmd: messages.ResealSecrets{}, who: messages.Requester{Principal: fmt.Sprintf("User:node-%d", a.c.opts.Node), RequestID: "secrets"},
		reply: make(chan messages.Outcome, 1), // nobody reads it: the next claim tries again
	}}, a.pending...)
}
