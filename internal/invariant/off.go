//go:build !race && !invariants

package invariant

const panics = false
