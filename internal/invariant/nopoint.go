//go:build !faultpoints || !unix

package invariant

// FaultPoints tells whether this build has fault points. It is a constant, so
// that what only makes up a point's name costs nothing in other builds.
const FaultPoints = false

// Reached marks a point between two effects, at which a build with the tag
// "faultpoints" can be told to end as a crash would. This build does nothing.
func Reached(string) {}
