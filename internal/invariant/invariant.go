// Package invariant reports a broken invariant: something that the code around
// it has made impossible. Its one function is [Violated], which panics in
// builds with -race or -tags invariants and returns an error elsewhere, so that
// tests stop at once and a production node fails one partition at most. The
// package owns no state.
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
