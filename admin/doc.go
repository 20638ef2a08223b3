// Package admin is the HTTP side of a node: liveness, readiness, metrics, a
// status page for people and the same facts as JSON for `kagami query`.
//
// Its main types are [Server] and [Queries], the interface through which it
// asks. It owns a listener and nothing else: every answer is asked for anew, no
// state is kept, nothing is ever changed, and no secret is ever shown.
package admin
