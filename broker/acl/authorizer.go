package acl

import (
	"sync/atomic"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// Options of an Authorizer.
type Options struct {
	// Image is the newest metadata image.
	Image func() *metadata.Image
	// SuperUsers are principals that may do everything, User:name.
	SuperUsers []string
	// AllowIfNone: everybody may use a resource that no entry is about.
	AllowIfNone bool
}

// Authorizer decides by the entries of the image. It may be used by many goroutines.
type Authorizer struct {
	image       func() *metadata.Image
	super       map[string]bool
	allowIfNone bool
	index       atomic.Pointer[index]
}

// New is an authorizer.
func New(o Options) *Authorizer {
	a := &Authorizer{image: o.Image, allowIfNone: o.AllowIfNone, super: make(map[string]bool, len(o.SuperUsers))}
	for _, u := range o.SuperUsers {
		a.super[u] = true
	}
	return a
}

func (a *Authorizer) now() *index {
	acls := a.image().ACLs()
	if x := a.index.Load(); x.current(acls) {
		return x
	}
	x := newIndex(acls)
	a.index.Store(x) // another goroutine's may be older: then the next one makes it anew
	return x
}

// Allowed decides: super users may do everything; an entry that denies wins over every one
// that allows, however they name the resource; what no entry allows is refused.
func (a *Authorizer) Allowed(who messages.Requester, op messages.ACLOperation, on messages.ACLResourceType, name string) bool {
	if a.super[who.Principal] {
		return true
	}
	x := a.now()
	if on <= 0 || int(on) >= len(x.kinds) {
		return false
	}
	v := x.kinds[on].judge(who, op, name)
	switch {
	case v.deny:
		return false
	case v.allow:
		return true
	default:
		return a.allowIfNone && !v.found
	}
}

// anyName is a resource that nobody has: who may do something with it may with all.
const anyName = "hardcode"

// AllowedAny decides whether there can be a resource of that type that the operation is
// allowed on: an entry allows it, and none denies all that it allows.
func (a *Authorizer) AllowedAny(who messages.Requester, op messages.ACLOperation, on messages.ACLResourceType) bool {
	if a.Allowed(who, op, on, anyName) {
		return true
	}
	x := a.now()
	if on <= 0 || int(on) >= len(x.kinds) {
		return false
	}
	k := &x.kinds[on]
	if k.says(k.literal[messages.ACLWildcard], who, op, true) {
		return false
	}
	for name, entries := range k.literal {
		if k.says(entries, who, op, false) && (name == messages.ACLWildcard || !k.denied(who, op, name, k.literal[name])) {
			return true
		}
	}
	for prefix, entries := range k.prefixed {
		if k.says(entries, who, op, false) && !k.denied(who, op, prefix, nil) {
			return true
		}
	}
	return false
}

// says reports whether one of the entries allows, or denies, just this operation, or all.
func (*kind) says(entries []entry, who messages.Requester, op messages.ACLOperation, deny bool) bool {
	for i := range entries {
		if e := &entries[i]; e.deny == deny && (e.op == op || e.op == messages.ACLAll) && e.about(who) {
			return true
		}
	}
	return false
}

// denied reports whether all resources of a name or prefix are denied, by the entries given
// or by a prefix.
func (k *kind) denied(who messages.Requester, op messages.ACLOperation, name string, literal []entry) bool {
	if k.says(literal, who, op, true) {
		return true
	}
	for _, n := range k.lengths {
		if n <= len(name) && k.says(k.prefixed[name[:n]], who, op, true) {
			return true
		}
	}
	return false
}
