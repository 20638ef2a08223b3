// Package messages holds what the parts of Kagami say to one another:
// identifiers, epochs, states, commands and their outcomes, refusals and the
// names of log fields.
//
// Its two main types are [TopicPartition] and [State]. Every value here is
// immutable by convention: a receiver never changes what it was sent, maps and
// slices included. The package owns no state, starts nothing, and imports
// nothing of this module but internal packages.
package messages
