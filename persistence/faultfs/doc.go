// Package faultfs is a file system in memory that fails on purpose: it stands
// under package persistence in tests and in the simulation.
//
// Its main type is [FS]. It keeps, for every file and folder, what programs see
// and what is durable; a crash at a chosen effect (a numbered change) makes
// every later call fail, and [FS.Restart] gives the file system that a restart
// would find: all of it (the process died), only what was synced (the power
// went), or anything in between. It can also lose syncs, fail any call, run out
// of space, and change stored bytes. It owns all its state, reads no clock, and
// takes its chance from a random source that is handed in.
package faultfs
