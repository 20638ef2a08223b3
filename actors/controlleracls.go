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
			s := metadata.StoredACL{ACL: a, ID: p.env.newID()}
			if c.Mirror != "" {
				s.Mirrors = []string{c.Mirror}
			}
			p.add(metadata.ACLRecord(s))
		case len(now.Mirrors) == 0 || slices.Contains(now.Mirrors, c.Mirror):
		case c.Mirror == "":
			s := *now
			s.Mirrors = nil
			p.add(metadata.ACLRecord(s))
		default:
			s := *now
			s.Mirrors = append(slices.Clone(s.Mirrors), c.Mirror)
			p.add(metadata.ACLRecord(s))
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
