// Package invariant holds what tests and production builds see differently.
//
// [Violated] reports a broken invariant, something that the code around it has
// made impossible: it panics in builds with -race or -tags invariants and returns
// an error elsewhere, so that tests stop at once and a production node fails one
// partition at most. [Reached] names a point between two effects, where a build
// with -tags faultpoints can be told by its environment to end as kill -9 would.
// In all other builds it is nothing, and the package owns no state.
package invariant

import "fmt"

// Violated returns an error that describes the broken invariant, or panics with
// it in builds that check (race detector or the tag "invariants").
func Violated(format string, args ...any) error {
	err := fmt.Errorf("invariant violated: "+format, args...)
	if panics {
		panic(err)
	}
	return err
}
