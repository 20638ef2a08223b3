// Package arch holds the rules of this repository that a test can check: who
// may import whom, package comments, file sizes, and that generated files are up
// to date. It has no code of its own besides tests.
package arch
