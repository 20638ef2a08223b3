// Package client is the admin client of KIP-1279: create, start, stop, pause,
// resume, recover, delete, list and describe cluster mirrors, over a kgo.Client.
//
// Its main types are [Client] and [Description]. A Client owns its kgo.Client
// when it was made by [New]; it holds no state of its own and may be used from
// several goroutines. Requests go to the destination cluster: no method ever
// talks to the source. Errors of a response are [*wire.Error] values that
// errors.Is matches with the sentinels of package messages, for example
// messages.ErrUnknownMirror. Nothing here logs, and nothing prints a config value.
package client
