package metadata

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/wire"
)

// StoredACL is an entry of the image, with its id.
type StoredACL struct {
	messages.ACL
	ID messages.TopicID
	// Mirrors are the cluster mirrors that copied it; none: it is an operator's.
	Mirrors []string
}

// ACLs is all entries in order. While they don't change it is the same slice.
func (i *Image) ACLs() []StoredACL { return i.acls }

// ACL finds an entry, nil if it isn't there.
func (i *Image) ACL(a messages.ACL) *StoredACL {
	if at, ok := slices.BinarySearchFunc(i.acls, a, compareACL); ok {
		return &i.acls[at]
	}
	return nil
}

func compareACL(s StoredACL, a messages.ACL) int { return s.Compare(a) }

// ScramUser names credentials: those of a user for a mechanism.
type ScramUser struct {
	Name      string
	Mechanism messages.ScramMechanism
}

// ScramCredential finds the credentials of a user; ok is false if there are none.
func (i *Image) ScramCredential(u ScramUser) (c messages.ScramCredential, ok bool) {
	c, ok = i.scram[u]
	return c, ok
}

// ScramUsers is who has credentials, in order.
func (i *Image) ScramUsers() []ScramUser {
	return slices.SortedFunc(maps.Keys(i.scram), func(a, b ScramUser) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Mechanism, b.Mechanism))
	})
}

// ACLRecord is the record that creates an entry, or says anew whose it is.
func ACLRecord(s StoredACL) *wire.AccessControlEntryRecord {
	r := wire.NewPtrAccessControlEntryRecord()
	r.ID, r.ResourceType, r.ResourceName, r.PatternType = s.ID, int8(s.Type), s.Name, int8(s.Pattern)
	r.Principal, r.Host, r.Operation, r.PermissionType = s.Principal, s.Host, int8(s.Operation), int8(s.Permission)
	r.Mirrors = s.Mirrors
	return r
}

// RemoveACLRecord is the record that removes an entry.
func RemoveACLRecord(id messages.TopicID) *wire.RemoveAccessControlEntryRecord {
	r := wire.NewPtrRemoveAccessControlEntryRecord()
	r.ID = id
	return r
}

// ScramRecord is the record that sets the credentials of a user.
func ScramRecord(u ScramUser, c messages.ScramCredential) *wire.UserScramCredentialRecord {
	r := wire.NewPtrUserScramCredentialRecord()
	r.Name, r.Mechanism = u.Name, int8(u.Mechanism)
	r.Salt, r.StoredKey, r.ServerKey, r.Iterations = c.Salt, c.StoredKey, c.ServerKey, c.Iterations
	return r
}

// RemoveScramRecord is the record that removes them.
func RemoveScramRecord(u ScramUser) *wire.RemoveUserScramCredentialRecord {
	r := wire.NewPtrRemoveUserScramCredentialRecord()
	r.Name, r.Mechanism = u.Name, int8(u.Mechanism)
	return r
}

func (i *Image) securityRecords(add func(Record)) {
	for _, s := range i.acls {
		add(ACLRecord(s))
	}
	for _, u := range i.ScramUsers() {
		add(ScramRecord(u, i.scram[u]))
	}
}

func (b *builder) ownSecurity() {
	if !b.ownACLs {
		b.img.acls, b.ownACLs = slices.Clone(b.img.acls), true
	}
	b.delta.ACLs = true
}

func (b *builder) setACL(r *wire.AccessControlEntryRecord) error {
	s := StoredACL{ID: r.ID, Mirrors: r.Mirrors, ACL: messages.ACL{
		Type: messages.ACLResourceType(r.ResourceType), Pattern: messages.ACLPattern(r.PatternType), Name: r.ResourceName,
		Principal: r.Principal, Host: r.Host, Operation: messages.ACLOperation(r.Operation), Permission: messages.ACLPermission(r.PermissionType),
	}}
	b.ownSecurity()
	at, found := slices.BinarySearchFunc(b.img.acls, s.ACL, compareACL)
	switch {
	case !found:
		b.img.acls = slices.Insert(b.img.acls, at, s)
	case b.img.acls[at].ID != s.ID:
		return fmt.Errorf("%w: access control entry %s is there with id %s", ErrBadRecord, s.ID, b.img.acls[at].ID)
	default:
		b.img.acls[at] = s
	}
	return nil
}

func (b *builder) removeACL(r *wire.RemoveAccessControlEntryRecord) error {
	at := slices.IndexFunc(b.img.acls, func(s StoredACL) bool { return s.ID == r.ID })
	if at < 0 {
		return fmt.Errorf("%w: removal of access control entry %s, which isn't there", ErrBadRecord, r.ID)
	}
	b.ownSecurity()
	b.img.acls = slices.Delete(b.img.acls, at, at+1)
	return nil
}

func (b *builder) ownScramMap() {
	if !b.ownScram {
		b.img.scram, b.ownScram = maps.Clone(b.img.scram), true
	}
	if b.img.scram == nil {
		b.img.scram = make(map[ScramUser]messages.ScramCredential)
	}
}

func (b *builder) setScram(r *wire.UserScramCredentialRecord) {
	b.ownScramMap()
	old, had := b.img.scram[ScramUser{r.Name, messages.ScramMechanism(r.Mechanism)}]
	b.noteSecret(string(old.StoredKey), had, recordSecrets(r))
	b.img.scram[ScramUser{r.Name, messages.ScramMechanism(r.Mechanism)}] = messages.ScramCredential{
		Salt: r.Salt, StoredKey: r.StoredKey, ServerKey: r.ServerKey, Iterations: r.Iterations,
	}
}

func (b *builder) removeScram(r *wire.RemoveUserScramCredentialRecord) error {
	u := ScramUser{r.Name, messages.ScramMechanism(r.Mechanism)}
	if _, ok := b.img.scram[u]; !ok {
		return fmt.Errorf("%w: removal of the %s credentials of %s, which aren't there", ErrBadRecord, u.Mechanism, u.Name)
	}
	b.ownScramMap()
	b.delta.Secrets = true
	delete(b.img.scram, u)
	return nil
}
