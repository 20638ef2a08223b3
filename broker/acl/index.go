package acl

import (
	"net/netip"
	"slices"
	"strings"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// index finds the entries about a resource. It never changes.
type index struct {
	of    []metadata.StoredACL // what it is the index of
	kinds [messages.ACLClusterMirror + 1]kind
}

// kind is the entries about one type of resource.
type kind struct {
	literal  map[string][]entry
	prefixed map[string][]entry
	lengths  []int // of the prefixes, each once
}

// entry is an entry without the resource.
type entry struct {
	principal string
	host      string
	address   netip.Addr // of host; not valid: * or something else
	op        messages.ACLOperation
	deny      bool
}

// anyUser is the principal of entries that are about every user.
const anyUser = "User:*"

func newIndex(acls []metadata.StoredACL) *index {
	x := &index{of: acls}
	for _, s := range acls {
		if s.Type <= 0 || int(s.Type) >= len(x.kinds) {
			continue
		}
		e := entry{principal: s.Principal, host: s.Host, op: s.Operation, deny: s.Permission == messages.ACLDeny}
		if a, err := netip.ParseAddr(s.Host); err == nil {
			e.address = a.Unmap()
		}
		k := &x.kinds[s.Type]
		if s.Pattern == messages.ACLPrefixed {
			if k.prefixed == nil {
				k.prefixed = make(map[string][]entry)
			}
			k.prefixed[s.Name] = append(k.prefixed[s.Name], e)
			if !slices.Contains(k.lengths, len(s.Name)) {
				k.lengths = append(k.lengths, len(s.Name))
			}
			continue
		}
		if k.literal == nil {
			k.literal = make(map[string][]entry)
		}
		k.literal[s.Name] = append(k.literal[s.Name], e)
	}
	return x
}

// current reports whether the entries are still those. A slice of an image never changes.
func (x *index) current(acls []metadata.StoredACL) bool {
	return x != nil && len(x.of) == len(acls) && (len(acls) == 0 || &x.of[0] == &acls[0])
}

// verdict is what the entries about a resource say.
type verdict struct{ found, allow, deny bool }

func (v *verdict) look(entries []entry, who messages.Requester, op messages.ACLOperation) {
	for i := range entries {
		e := &entries[i]
		v.found = true
		switch {
		case !e.about(who):
		case e.deny:
			v.deny = v.deny || e.op == op || e.op == messages.ACLAll
		default:
			v.allow = v.allow || e.grants(op)
		}
	}
}

func (k *kind) judge(who messages.Requester, op messages.ACLOperation, name string) (v verdict) {
	v.look(k.literal[name], who, op)
	if name != messages.ACLWildcard {
		v.look(k.literal[messages.ACLWildcard], who, op)
	}
	for _, n := range k.lengths {
		if n <= len(name) {
			v.look(k.prefixed[name[:n]], who, op)
		}
	}
	return v
}

// about reports whether the entry is about who asks, from where it asks.
func (e *entry) about(who messages.Requester) bool {
	if e.principal != who.Principal && (e.principal != anyUser || !strings.HasPrefix(who.Principal, "User:")) {
		return false
	}
	if e.host == messages.ACLWildcard || e.host == who.Host {
		return true
	}
	if !e.address.IsValid() {
		return false
	}
	from, err := netip.ParseAddr(who.Host)
	return err == nil && from.Unmap() == e.address
}

// grants reports whether an entry that allows covers the operation: who may read, write,
// delete or alter may describe, and who may alter configs may describe them.
func (e *entry) grants(op messages.ACLOperation) bool {
	if e.op == op || e.op == messages.ACLAll {
		return true
	}
	if op == messages.ACLDescribe {
		return e.op == messages.ACLRead || e.op == messages.ACLWrite || e.op == messages.ACLDelete || e.op == messages.ACLAlter
	}
	return op == messages.ACLDescribeConfigs && e.op == messages.ACLAlterConfigs
}
