package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/messages/wire"
)

// Secrets of the log are the values of password settings and the keys of SCRAM users. The
// controller seals them before it writes ([Seal]); images, snapshots and copies have them
// as the log has. Who uses one opens it then ([OpenConfigs], [OpenScram]).

// configSet is the settings of a kind of resource, nil for none.
func configSet(kind messages.ResourceType) *configs.Set {
	switch kind {
	case messages.ResourceTopic:
		return configs.Topic()
	case messages.ResourceBroker:
		return configs.Broker()
	case messages.ResourceClusterMirror:
		return configs.Mirror()
	case messages.ResourceGroup:
		return configs.Group()
	case messages.ResourceClientMetrics:
		return configs.ClientMetrics()
	case messages.ResourceBrokerLogger:
		return nil
	default:
		return nil
	}
}

func secretConfig(kind messages.ResourceType, name string) bool {
	set := configSet(kind)
	if set == nil {
		return false
	}
	def := set.Lookup(name)
	return def != nil && def.Sensitive()
}

func configPlace(kind messages.ResourceType, resource, name string) secrets.Place {
	return secrets.Place{"config", strconv.Itoa(int(kind)), resource, name}
}

// scramPlace binds a key to its user and to what it was made with.
func scramPlace(u ScramUser, which string, salt []byte, iterations int32) secrets.Place {
	return secrets.Place{"scram", u.Name, u.Mechanism.String(), which, string(salt), strconv.Itoa(int(iterations))}
}

const (
	scramStored = "stored key"
	scramServer = "server key"
)

// Seal returns records with their secrets encrypted by the first key of a ring. Records
// that are given stay as they are; without such a key they come back.
func Seal(ring *secrets.Ring, records []Record) ([]Record, error) {
	if ring.Primary() == "" {
		return records, nil
	}
	out := slices.Clone(records)
	for i, r := range out {
		var err error
		switch r := r.(type) {
		case *wire.ConfigRecord:
			if r.Value != nil && secretConfig(messages.ResourceType(r.ResourceType), r.Name) {
				c := *r
				var sealed string
				sealed, err = ring.Seal(*r.Value, configPlace(messages.ResourceType(r.ResourceType), r.ResourceName, r.Name))
				c.Value, out[i] = &sealed, &c
			}
		case *wire.UserScramCredentialRecord:
			c := *r
			u := ScramUser{r.Name, messages.ScramMechanism(r.Mechanism)}
			var stored, server string
			stored, err = ring.Seal(string(r.StoredKey), scramPlace(u, scramStored, r.Salt, r.Iterations))
			if err == nil {
				server, err = ring.Seal(string(r.ServerKey), scramPlace(u, scramServer, r.Salt, r.Iterations))
			}
			c.StoredKey, c.ServerKey, out[i] = []byte(stored), []byte(server), &c
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// HasSecrets reports whether one of the records sets a secret.
func HasSecrets(records []Record) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return len(recordSecrets(r)) > 0 })
}

// recordSecrets are the secrets of a record, as it has them.
func recordSecrets(r Record) []string {
	switch r := r.(type) {
	case *wire.ConfigRecord:
		if r.Value != nil && secretConfig(messages.ResourceType(r.ResourceType), r.Name) {
			return []string{*r.Value}
		}
	case *wire.UserScramCredentialRecord:
		return []string{string(r.StoredKey), string(r.ServerKey)}
	}
	return nil
}

// OpenConfigs returns settings of a resource with their secrets in clear: the map itself
// where none is sealed, else a copy. What can't be opened is left out, and told in the
// error, which names the settings and keys and wraps [secrets.ErrNoKey] or
// [secrets.ErrDamaged].
func OpenConfigs(ring *secrets.Ring, kind messages.ResourceType, resource string, values map[string]string) (map[string]string, error) {
	out, own := values, false
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, sealed := secrets.Sealed(values[name]); !sealed || !secretConfig(kind, name) {
			continue
		}
		if !own {
			out, own = maps.Clone(values), true
		}
		opened, err := ring.Open(values[name], configPlace(kind, resource, name))
		if err != nil {
			delete(out, name)
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		out[name] = opened
	}
	return out, errors.Join(errs...)
}

// OpenScram returns the credentials of a user with their keys in clear.
func OpenScram(ring *secrets.Ring, u ScramUser, c messages.ScramCredential) (messages.ScramCredential, error) {
	stored, err := ring.Open(string(c.StoredKey), scramPlace(u, scramStored, c.Salt, c.Iterations))
	if err != nil {
		return messages.ScramCredential{}, fmt.Errorf("%s keys of user %s: %w", u.Mechanism, u.Name, err)
	}
	server, err := ring.Open(string(c.ServerKey), scramPlace(u, scramServer, c.Salt, c.Iterations))
	if err != nil {
		return messages.ScramCredential{}, fmt.Errorf("%s keys of user %s: %w", u.Mechanism, u.Name, err)
	}
	c.StoredKey, c.ServerKey = []byte(stored), []byte(server)
	return c, nil
}

// secretRecords calls add with the records that may have secrets, and some more.
func (i *Image) secretRecords(add func(Record)) {
	i.mirrorAndBrokerRecords(add)
	for _, u := range i.ScramUsers() {
		add(ScramRecord(u, i.scram[u]))
	}
}

// noteSecret says in the delta that a secret changed, and whether it changed its key.
func (b *builder) noteSecret(old string, had bool, now []string) {
	b.delta.Secrets = true
	if !had || len(now) == 0 {
		return
	}
	was, _ := secrets.Sealed(old)
	is, _ := secrets.Sealed(now[0])
	b.delta.Rekeyed = b.delta.Rekeyed || was != is
}

// SecretCounts is how many secrets stand under which key, by its id; "" is in clear.
func (i *Image) SecretCounts() map[string]int {
	out := make(map[string]int)
	i.secretRecords(func(r Record) {
		for _, s := range recordSecrets(r) {
			id, _ := secrets.Sealed(s)
			out[id]++
		}
	})
	return out
}

// Unopened describes the secrets that a ring doesn't open, one error each.
func (i *Image) Unopened(ring *secrets.Ring) []error {
	var out []error
	for _, m := range i.mirrors {
		if _, err := OpenConfigs(ring, messages.ResourceClusterMirror, m.Name, m.Configs); err != nil {
			out = append(out, fmt.Errorf("mirror %s: %w", m.Name, err))
		}
	}
	for _, u := range i.ScramUsers() {
		if _, err := OpenScram(ring, u, i.scram[u]); err != nil {
			out = append(out, err)
		}
	}
	return out
}

// A change of all secrets could be larger than a message between nodes may be: it is made in
// pieces. A piece ends with the record that brings it to resealBytes, counted as resealRecord and
// the secrets as they stand, which grow by a third at most.
const (
	resealBytes  = 4 << 20
	resealRecord = 512
)

// Reseal are records, in clear, of the secrets that aren't under the first key of a ring, for
// [Seal]: as many as one change may have. A nil ring changes nothing. What doesn't open is left.
func (i *Image) Reseal(ring *secrets.Ring) []Record {
	if ring == nil {
		return nil
	}
	var out []Record
	size := 0
	take := func(now, then Record) {
		out = append(out, then)
		for _, s := range recordSecrets(now) {
			size += len(s)
		}
		size += resealRecord
	}
	i.secretRecords(func(r Record) {
		due := size < resealBytes && slices.ContainsFunc(recordSecrets(r), func(s string) bool {
			id, _ := secrets.Sealed(s)
			return id != ring.Primary()
		})
		if !due {
			return
		}
		switch r := r.(type) {
		case *wire.ConfigRecord:
			value, err := ring.Open(*r.Value, configPlace(messages.ResourceType(r.ResourceType), r.ResourceName, r.Name))
			if err == nil {
				take(r, ConfigRecord(messages.ResourceType(r.ResourceType), r.ResourceName, r.Name, &value))
			}
		case *wire.UserScramCredentialRecord:
			u := ScramUser{r.Name, messages.ScramMechanism(r.Mechanism)}
			if c, err := OpenScram(ring, u, i.scram[u]); err == nil {
				take(r, ScramRecord(u, c))
			}
		}
	})
	return out
}
