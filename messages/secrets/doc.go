// Package secrets encrypts what the metadata log keeps of passwords. A [Ring] is the keys
// of a node: it seals values into a text form of their own, each bound to its [Place], and
// opens them again. It is immutable, reads no files, and no error, text or format of it
// shows a key or a clear value.
package secrets
