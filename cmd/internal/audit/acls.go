package audit

import (
	"fmt"
	"slices"
	"strings"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// aclsShown is how many entries an event names.
const aclsShown = 20

// aclEvents tells which ACLs the mirror copied, and which of its own went.
func (r *requests) aclEvents(step metadata.Step, at Event) []Event {
	if !step.Delta.ACLs {
		return nil
	}
	before, now := r.copied(step.Delta.Old), r.copied(step.Delta.New)
	var made, gone, left []messages.ACL
	for _, a := range now {
		if !has(before, a) {
			made = append(made, a)
		}
	}
	for _, a := range before {
		switch {
		case has(now, a):
		case step.Delta.New.ACL(a) == nil:
			gone = append(gone, a)
		default:
			left = append(left, a)
		}
	}
	var out []Event
	for _, k := range []struct {
		kind Kind
		acls []messages.ACL
	}{{KindACLs, made}, {KindACLsGone, gone}, {KindACLsLeft, left}} {
		if len(k.acls) > 0 {
			e := at
			e.Kind, e.Detail = k.kind, shownACLs(k.acls)
			out = append(out, e)
		}
	}
	return out
}

// copied is the mirror's entries, in order.
func (r *requests) copied(img *metadata.Image) []messages.ACL {
	var out []messages.ACL
	for _, s := range img.ACLs() {
		if slices.Contains(s.Mirrors, r.mirror) {
			out = append(out, s.ACL)
		}
	}
	return out
}

func has(sorted []messages.ACL, a messages.ACL) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, messages.ACL.Compare)
	return ok
}

func shownACLs(acls []messages.ACL) string {
	var out []string
	for _, a := range acls[:min(len(acls), aclsShown)] {
		out = append(out, a.String())
	}
	if more := len(acls) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
