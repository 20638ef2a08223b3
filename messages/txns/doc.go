// Package txns holds what is asked of a transaction coordinator and what it
// answers, free of the protocol's versions, and the records of
// __transaction_state with their codec. Its two main types are [Request] and
// [Record]. Values are immutable by convention; the package owns no state and
// never decides anything: that is fsm/txn.
package txns
