package groups

// Look asks what a group has committed on topics, without looking at who asks; the
// answer is *Looked.
type Look struct {
	Group  string
	Topics map[string]struct{}
}

// Looked answers Look. Type and State are "" if there is no such group.
type Looked struct {
	Err       error
	Type      string
	State     string
	Live      bool // the group has members
	Positions []Position
}

// Follow commits what a group has committed on the source of a mirror; the answer is
// *Committed. A group that has members is refused with ErrNonEmptyGroup. Where what
// is committed isn't what it was when this was decided, the position is refused with
// ErrSettingsChanged: somebody else moved the group meanwhile.
type Follow struct {
	Group     string
	Positions []FollowPosition
	// Follows reports, at the coordinator, whether the topic still follows the source.
	Follows func(topic string) bool
}

// FollowPosition is a position to commit, and the offset that was committed before, -1
// for none.
type FollowPosition struct {
	Position
	Was int64
}

// GroupID names the group.
func (r Look) GroupID() string { return r.Group }

// GroupID names the group.
func (r Follow) GroupID() string { return r.Group }

func (*Looked) answer() {}
