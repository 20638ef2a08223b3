package actors

import (
	"fmt"
	"slices"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// createACLs adds entries that aren't there. What is there stays; an operator who creates
// what a mirror has copied takes it over, and a mirror leaves an operator's alone (OP-31).
func (p *plan) createACLs(c messages.CreateACLs) {
	seen := make(map[messages.ACL]bool, len(c.Entries))
	for _, a := range c.Entries {
		err := a.Check()
		p.item(a.Name, err)
		if err != nil || seen[a] {
			continue
		}
		seen[a] = true
		now := p.img.ACL(a)
		switch {
		case now == nil:
			p.add(metadata.ACLRecord(metadata.StoredACL{ACL: a, ID: p.env.newID()}))
		case len(now.Mirrors) > 0:
			p.ownACL(now, nil)
		}
	}
}

// ownACL says anew whose an entry is.
func (p *plan) ownACL(now *metadata.StoredACL, mirrors []string) {
	s := *now
	s.Mirrors = mirrors
	p.add(metadata.ACLRecord(s))
}

// followACLs is metadata-sync.md "ACLs", steps 3 and 4: what is there by now decides, not
// what was there when the mirror looked. An entry goes when the last mirror that made it
// sees it no more.
func (p *plan) followACLs(c messages.FollowACLs) error {
	m, err := p.mirror(c.Mirror)
	if err != nil {
		return err
	}
	if err := expectConnection(m, c.Expect); err != nil {
		return err
	}
	seen := make(map[messages.ACL]bool, len(c.Changes))
	for _, ch := range c.Changes {
		err := ch.Check()
		if err == nil && ch.Type == messages.ACLClusterMirror {
			err = fmt.Errorf("%w: ACLs of cluster mirrors aren't copied", messages.ErrInvalidRequest)
		}
		p.item(ch.Name, err)
		if err != nil || seen[ch.ACL] {
			continue
		}
		seen[ch.ACL] = true
		now := p.img.ACL(ch.ACL)
		mine := now != nil && slices.Contains(now.Mirrors, c.Mirror)
		switch {
		case now == nil && !ch.Gone:
			p.add(metadata.ACLRecord(metadata.StoredACL{ACL: ch.ACL, ID: p.env.newID(), Mirrors: []string{c.Mirror}}))
		case now == nil || len(now.Mirrors) == 0 || mine != ch.Gone: // nothing to do, or an operator's
		case !ch.Gone:
			p.ownACL(now, append(slices.Clone(now.Mirrors), c.Mirror))
		case len(now.Mirrors) == 1:
			p.add(metadata.RemoveACLRecord(now.ID))
		default:
			p.ownACL(now, without(now.Mirrors, c.Mirror))
		}
	}
	return nil
}

func without(mirrors []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(mirrors), func(m string) bool { return m == name })
}

// leaveACLs gives what a mirror alone has copied to the operator: another mirror of that
// name must not take it away.
func (p *plan) leaveACLs(mirror string) {
	acls := p.img.ACLs()
	for i := range acls {
		if now := &acls[i]; slices.Contains(now.Mirrors, mirror) {
			p.ownACL(now, without(now.Mirrors, mirror))
		}
	}
}

// deleteACLs removes what the filters find. What two of them find is in both answers, and
// removed once.
func (p *plan) deleteACLs(c messages.DeleteACLs) {
	gone := make(map[messages.TopicID]bool)
	for _, f := range c.Filters {
		item := messages.Item{Err: f.Check()}
		if item.Err == nil {
			for _, s := range p.img.ACLs() {
				if !f.Matches(s.ACL) {
					continue
				}
				item.ACLs = append(item.ACLs, s.ACL)
				if !gone[s.ID] {
					gone[s.ID] = true
					p.add(metadata.RemoveACLRecord(s.ID))
				}
			}
		}
		p.items = append(p.items, item)
	}
}

// alterScram sets and removes credentials. A user named twice has none of its changes
// made, as in Kafka.
func (p *plan) alterScram(c messages.AlterScram) {
	if c.OnlyFirst && len(p.img.ScramUsers()) > 0 {
		return
	}
	users := make(map[metadata.ScramUser]int)
	for _, ch := range c.Changes {
		users[metadata.ScramUser{Name: ch.User, Mechanism: ch.Mechanism}]++
	}
	for _, ch := range c.Changes {
		u := metadata.ScramUser{Name: ch.User, Mechanism: ch.Mechanism}
		err := messages.CheckScram(ch)
		_, known := p.img.ScramCredential(u)
		switch {
		case err != nil:
		case users[u] > 1:
			err = fmt.Errorf("%w: A user credential cannot be altered twice in the same request", messages.ErrDuplicateResource)
		case ch.Delete && !known:
			err = fmt.Errorf("%w: Attempt to delete a user credential that does not exist", messages.ErrResourceNotFound)
		case ch.Delete:
			p.add(metadata.RemoveScramRecord(u))
		default:
			p.add(metadata.ScramRecord(u, ch.Set))
		}
		p.item(ch.User, err)
	}
}
