package faultfs

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
)

// Loss says what a restart finds.
type Loss int

// The kinds of loss.
const (
	// LoseNothing: the process died, the system lived.
	LoseNothing Loss = iota + 1
	// LoseUnsynced: the power went, and nothing unsynced had been written.
	LoseUnsynced
	// LoseSome: the power went. Of the names in each folder, each has made some of
	// its changes; of each file, a part of the writes has happened, the last of
	// them perhaps in part, or some and not others.
	LoseSome
)

// String is for the names of tests.
func (l Loss) String() string {
	switch l {
	case LoseNothing:
		return "lose-nothing"
	case LoseUnsynced:
		return "lose-unsynced"
	case LoseSome:
		return "lose-some"
	default:
		return "unknown"
	}
}

// Restart returns the file system that a restart finds after a crash now. The
// old one fails every call from then on. rng may be nil unless loss is LoseSome.
func (f *FS) Restart(loss Loss, rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
	out := New()
	seen := make(map[*node]*node)
	out.root = survive(f.root, loss, rng, seen)
	return out
}

// survive copies what is left of a node. A file under two names stays one file.
func survive(n *node, loss Loss, rng *rand.Rand, seen map[*node]*node) *node {
	if c := seen[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir}
	seen[n] = c
	if n.dir {
		names := n.survivors(loss, rng)
		c.names, c.durableName = make(map[string]*node), make(map[string]*node)
		for _, name := range sortedNames(names) {
			s := survive(names[name], loss, rng, seen)
			c.names[name], c.durableName[name] = s, s
		}
		if loss == LoseNothing {
			c.keepPending(n, seen)
		}
		return c
	}
	switch loss {
	case LoseNothing:
		c.data = append([]byte(nil), n.data...)
		// still not durable: a later loss of power may take it
		c.durable = append([]byte(nil), n.durable...)
		c.writes = append([]change(nil), n.writes...)
		return c
	case LoseUnsynced:
		c.data = append([]byte(nil), n.durable...)
	case LoseSome:
		c.data = n.someWrites(rng)
	}
	c.durable = append([]byte(nil), c.data...)
	return c
}

// keepPending carries over which names aren't durable yet.
func (n *node) keepPending(old *node, seen map[*node]*node) {
	clear(n.durableName)
	for name, o := range old.durableName {
		n.durableName[name] = survive(o, LoseNothing, nil, seen)
	}
	for _, c := range old.changes {
		if c.to != nil {
			c.to = survive(c.to, LoseNothing, nil, seen)
		}
		n.changes = append(n.changes, c)
	}
}

func (n *node) survivors(loss Loss, rng *rand.Rand) map[string]*node {
	switch loss {
	case LoseNothing:
		return n.names
	case LoseUnsynced:
		return n.durableName
	case LoseSome:
	}
	names := maps.Clone(n.durableName)
	// each name has made a number of its changes, whatever the others did
	stop := make(map[string]bool)
	for _, c := range n.changes {
		if !stop[c.name] && rng.IntN(4) == 0 {
			stop[c.name] = true
		}
		if stop[c.name] {
			continue
		}
		if c.to == nil {
			delete(names, c.name)
		} else {
			names[c.name] = c.to
		}
	}
	return names
}

// someWrites applies a part of the unsynced writes: up to a point, the last one
// torn, or some of them here and there.
func (n *node) someWrites(rng *rand.Rand) []byte {
	data := append([]byte(nil), n.durable...)
	scattered := rng.IntN(3) == 0
	keep := rng.IntN(len(n.writes) + 1)
	for i, w := range n.writes {
		switch {
		case scattered && rng.IntN(3) == 0:
			continue
		case !scattered && i >= keep:
			if i == keep && len(w.data) > 0 {
				data = change{w.pos, w.data[:rng.IntN(len(w.data))]}.apply(data)
			}
			return data
		}
		data = w.apply(data)
	}
	return data
}

func sortedNames(m map[string]*node) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Flip changes one stored byte of a file; out of range does nothing.
func (f *FS) Flip(name string, pos int64, mask byte) error {
	return f.change(name, func(n *node) {
		if pos >= 0 && pos < int64(len(n.data)) {
			n.data[pos] ^= mask
		}
	})
}

// Cut shortens a stored file, if it is longer.
func (f *FS) Cut(name string, size int64) error {
	return f.change(name, func(n *node) {
		if size >= 0 && size < int64(len(n.data)) {
			n.data = n.data[:size:size]
		}
	})
}

func (f *FS) change(name string, do func(*node)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(name)
	if err != nil {
		return err
	}
	if n.dir {
		return &fs.PathError{Op: "change", Path: name, Err: errors.New("is a folder")}
	}
	do(n)
	n.durable, n.writes = append([]byte(nil), n.data...), nil
	return nil
}
